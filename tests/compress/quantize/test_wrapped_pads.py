"""Circular padding, which OpenVINO cannot read, in a form that it reads."""

import numpy as np
import openvino
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement import OpenVINO
from compress.quantize.settings import QuantizeSettings

SHAPE = (1, 3, 6, 8)


@pytest.fixture
def make_panorama(make_model):
    def make(pads, axes=None, mode="wrap"):
        weights = {"pads": np.array(pads), "w": np.ones((4, 3, 1, 1), np.float32) / 7}
        inputs = ["x", "pads"]
        if axes is not None:
            weights["axes"] = np.array(axes)
            inputs += ["", "axes"]
        nodes = [
            helper.make_node("Pad", inputs, ["p"], "pad", mode=mode),
            helper.make_node("Conv", ["p", "w"], ["y"], "conv"),
        ]
        return make_model(nodes, weights, {"x": SHAPE}, ["y"], opset=19)

    return make


@pytest.mark.parametrize(
    ("pads", "axes"),
    [
        ([0, 0, 1, 2, 0, 0, 3, 1], None),
        ([2, 2], [3]),
        ([0, 8, 6, 0], [-2, -1]),
        ([0, 0], [3]),
    ],
    ids=["both axes", "sideways", "one end each, whole", "nothing"],
)
def test_the_form_computes_the_same_and_openvino_reads_it(pads, axes, make_panorama, run_model):
    model = make_panorama(pads, axes)
    graph = Graph(model)
    OpenVINO().write_forms(graph)
    written = graph.to_model()
    assert not [node for node in written.graph.node if node.op_type == "Pad"]
    feeds = {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)}
    wanted = run_model(model, feeds)["y"]
    np.testing.assert_array_equal(run_model(written, feeds)["y"], wanted)
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(written.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    np.testing.assert_allclose(compiled([feeds["x"]])[0], wanted, atol=1e-5)


def test_other_pads_stay(make_panorama):
    for pads, axes, mode in (([1, 1], [3], "edge"), ([-1, 1], [3], "wrap"), ([9, 0], [3], "wrap")):
        graph = Graph(make_panorama(pads, axes, mode))
        OpenVINO().write_forms(graph)
        assert graph.nodes[0].op_type == "Pad"


def test_a_panorama_is_quantized_for_openvino(make_panorama, samples):
    model = make_panorama([1, 1], [3])
    rng = np.random.default_rng(0)
    some = [{"x": rng.uniform(0, 1, SHAPE).astype(np.float32)} for _ in samples]
    result = quantize_model(model, some, QuantizeSettings(target="openvino"))
    openvino.Core().read_model(result.model.SerializeToString())
    assert result.outputs_db["y"] > 30
