"""OpenVINO computes what the file says, for every placement and the patterns it rewrites."""

import numpy as np
import openvino
import pytest
from onnx import helper

from artifacts.openvino_guard import GUARD_SUFFIX, remove_guards
from compress.quantize.api import quantize_model
from compress.quantize.placement import PLACEMENTS
from compress.quantize.settings import QuantizeSettings


@pytest.fixture
def run_openvino():
    core = openvino.Core()

    def run(model, feeds):
        compiled = core.compile_model(
            core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
        )
        results = compiled(list(feeds.values()))
        return {next(iter(port.get_names())): value for port, value in results.items()}

    return run


def concat_model(make_model, tail):
    """Two branches, one of them never negative, joined and read by a Conv."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) * 0.3
        for name, shape in (("wa", (8, 3, 3, 3)), ("wb", (8, 3, 1, 1)), ("wc", (6, 16, 3, 3)))
    }
    nodes = [
        helper.make_node("Conv", ["x", "wa"], ["a"], "left", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["ra"], "relu"),
        helper.make_node("Conv", ["x", "wb"], ["b"], "right"),
        helper.make_node("Concat", ["ra", "b"], ["c"], "join", axis=1),
    ]
    last = "c"
    if tail:
        options = {"kernel_shape": [2, 2], "strides": [2, 2]} if tail == "MaxPool" else {}
        nodes.append(helper.make_node(tail, ["c"], ["t"], "tail", **options))
        last = "t"
    nodes.append(helper.make_node("Conv", [last, "wc"], ["y"], "reader", pads=[1] * 4))
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


def sqnr_db(wanted, got):
    return 10 * np.log10(np.square(wanted).sum() / max(np.square(wanted - got).sum(), 1e-12))


@pytest.mark.parametrize("target", PLACEMENTS)
@pytest.mark.parametrize("tail", ["", "Relu", "MaxPool"])
def test_a_concat_is_computed_as_written(
    target, tail, make_model, samples, run_model, run_openvino
):
    model = concat_model(make_model, tail)
    quantized = quantize_model(model, samples, QuantizeSettings(target=target)).model
    wanted = run_model(quantized, samples[0])["y"]
    assert sqnr_db(wanted, run_openvino(quantized, samples[0])["y"]) > 50


def test_without_the_guard_openvino_goes_wrong(make_model, samples, run_model, run_openvino):
    """The negative control; once it fails, OpenVINO is mended and the guard can go."""
    quantized = quantize_model(concat_model(make_model, ""), samples).model
    bare = remove_guards(quantized)
    assert [node.name for node in quantized.graph.node if node.name.endswith(GUARD_SUFFIX)]
    assert not [node.name for node in bare.graph.node if node.name.endswith(GUARD_SUFFIX)]
    wanted = run_model(quantized, samples[0])["y"]
    np.testing.assert_array_equal(run_model(bare, samples[0])["y"], wanted)
    assert sqnr_db(wanted, run_openvino(bare, samples[0])["y"]) < 30


@pytest.mark.parametrize("target", PLACEMENTS)
def test_a_residual_network_is_computed_as_written(
    target, residual_model, samples, run_model, run_openvino
):
    quantized = quantize_model(residual_model, samples, QuantizeSettings(target=target)).model
    wanted, got = run_model(quantized, samples[0]), run_openvino(quantized, samples[0])
    for name, value in wanted.items():
        assert sqnr_db(value, got[name]) > 40
