"""GatherElements that reads a part of its data, in a form that OpenVINO compiles."""

import numpy as np
import openvino
import pytest
from onnx import TensorProto, helper

from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement import OpenVINO
from compress.quantize.settings import QuantizeSettings

SHAPE = (1, 30, 8)


def compile_for_openvino(model):
    core = openvino.Core()
    read = core.read_model(model.SerializeToString())
    return core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


@pytest.fixture
def make_gather(make_model):
    """Returns a function: a product [1, 30, 8], of which indices gather a part."""

    def make(indices, axis, sliced=()):
        rng = np.random.default_rng(0)
        weights = {"w": rng.normal(0, 0.3, (8, 8)).astype(np.float32), "indices": indices}
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        ]
        data = "p"
        if sliced:
            names = ["starts", "ends", "axes"]
            axes = [one for one in range(3) if one != axis % 3]
            ends = [indices.shape[one] for one in axes]
            weights |= dict(zip(names, map(np.array, ([sliced[0]] * 2, ends, axes)), strict=True))
            nodes.append(helper.make_node("Slice", ["p", *names], ["part"], "slice"))
            data = "part"
        nodes.append(
            helper.make_node("GatherElements", [data, "indices"], ["y"], "gather", axis=axis)
        )
        return make_model(nodes, weights, {"x": SHAPE}, ["y"], opset=18)

    return make


@pytest.mark.parametrize("sliced", [(), (0,)], ids=["whole", "sliced"])
@pytest.mark.parametrize(
    ("shape", "axis", "cuts"),
    [((1, 5, 4), 1, 1), ((1, 5, 8), -2, 0), ((1, 12, 9), 2, 1), ((1, 2, 3), 0, 2)],
    ids=["boxes", "all of it", "rows", "both"],
)
def test_the_form_computes_the_same_and_openvino_compiles_it(
    shape, axis, cuts, sliced, make_gather, run_model
):
    rng = np.random.default_rng(1)
    model = make_gather(rng.integers(0, SHAPE[axis], shape), axis, sliced)
    graph = Graph(model)
    OpenVINO().write_forms(graph)
    written = graph.to_model()
    operators = [node.op_type for node in written.graph.node]
    assert operators.count("Split" if sliced else "Slice") == cuts
    feeds = {"x": rng.standard_normal(SHAPE).astype(np.float32)}
    wanted = run_model(model, feeds)["y"]
    np.testing.assert_array_equal(run_model(written, feeds)["y"], wanted)
    got = compile_for_openvino(written)([feeds["x"]])[0]
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    if cuts:
        with pytest.raises(RuntimeError, match="not consistent"):
            compile_for_openvino(model)


def test_boxes_gathered_behind_a_decision_are_quantized_for_openvino(make_model):
    """The best five of thirty: the first four of eight values are their boxes."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(0, 0.3, (8, 8)).astype(np.float32),
        "last": np.array(7),
        "five": np.array([5]),
        "axis": np.array([2]),
        "boxes": np.array([1, 5, 4]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Gather", ["p", "last"], ["scores"], "scores", axis=2),
        helper.make_node("TopK", ["scores", "five"], ["best", "which"], "top", axis=1),
        helper.make_node("Unsqueeze", ["which", "axis"], ["column"], "column"),
        helper.make_node("Expand", ["column", "boxes"], ["indices"], "indices"),
        helper.make_node("GatherElements", ["p", "indices"], ["y"], "gather", axis=1),
    ]
    model = make_model(nodes, weights, {"x": SHAPE}, ["y", "best"], opset=18)
    types = {item.name: item.type.tensor_type.elem_type for item in model.graph.output}
    assert types["y"] == TensorProto.FLOAT
    samples = [{"x": rng.uniform(-1, 1, SHAPE).astype(np.float32)} for _ in range(4)]
    result = quantize_model(model, samples, QuantizeSettings(target="openvino")).model
    got = compile_for_openvino(result)([samples[0]["x"]])
    assert got["y"].shape == (1, 5, 4)
    assert compare_models(model, result, samples)["outputs"]["best"]["sqnr_db"] > 30
