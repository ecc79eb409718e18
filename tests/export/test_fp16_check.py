import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from artifacts.removed_pairs import remove_qdq
from export.fp16_check import run_model
from export.precision import apply_fp16

SHAPE = [1, 2, 4, 4]


def describe(name, shape=SHAPE):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def make_network():
    """A pair, a branch that reads a constant, and an output that is a constant itself."""
    branches = {
        f"{kind}_branch": helper.make_graph(
            [helper.make_node(operator, ["a", "shift"], [operator])], kind, [], [describe(operator)]
        )
        for kind, operator in (("then", "Add"), ("else", "Sub"))
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["a"]),
        helper.make_node("If", ["is_day"], ["y"], **branches),
    ]
    constants = {
        "scale": np.float32(0.01),
        "zero": np.int8(0),
        "is_day": np.bool_(True),
        "shift": np.float32(0.25),
        "anchors": np.arange(6, dtype=np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "network",
        [describe("x")],
        [describe("y"), describe("anchors", [6])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def test_constants_that_outputs_and_branches_read_outlive_the_pairs():
    sample = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(SHAPE)}
    (got,) = run_model(remove_qdq(make_network()), [sample])
    np.testing.assert_allclose(got["y"], np.maximum(sample["x"], 0) + 0.25, atol=1e-6)
    np.testing.assert_array_equal(got["anchors"], np.arange(6))


def test_integers_that_leave_the_network_or_are_moved_stay_quantized():
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("Transpose", ["q"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("DequantizeLinear", ["t", "scale", "zero"], ["y"]),
        helper.make_node("QuantizeLinear", ["y", "scale", "zero"], ["out"]),
    ]
    constants = {"scale": np.float32(0.01), "zero": np.int8(0)}
    graph = helper.make_graph(
        nodes,
        "network",
        [describe("x")],
        [describe("y", None), helper.make_tensor_value_info("out", TensorProto.INT8, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    sample = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(SHAPE)}
    got, expected = (run_model(each, [sample])[0] for each in (remove_qdq(model), model))
    for name in ("y", "out"):
        np.testing.assert_array_equal(got[name], expected[name])


def test_a_constant_output_is_typed_and_measured_like_any_other():
    sample = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(SHAPE)}
    result = apply_fp16(make_network(), [sample])
    assert result.sqnr_db["anchors"] == np.inf
    (got,) = run_model(result.model, [sample])
    np.testing.assert_array_equal(got["anchors"], np.arange(6))


def make_decider(output, element_type):
    """Scores of x, and one decision about them: a mask, labels, a count, or places."""
    constants = {"least": np.float32(0.01), "none": np.float32(0)}
    scores = helper.make_node("Tanh", ["x"], ["scores"])
    decide = {
        "mask": [helper.make_node("Greater", ["scores", "least"], ["mask"])],
        "labels": [helper.make_node("ArgMax", ["scores"], ["labels"], axis=1)],
        "count": [
            helper.make_node("Greater", ["scores", "none"], ["mask"]),
            helper.make_node("Cast", ["mask"], ["ones"], to=TensorProto.INT32),
            helper.make_node("ReduceSum", ["ones"], ["count"]),
        ],
        "places": [
            helper.make_node("Greater", ["scores", "least"], ["mask"]),
            helper.make_node("NonZero", ["mask"], ["places"]),
        ],
    }
    nodes = [scores, *decide[output]]
    results = [
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, SHAPE),
        helper.make_tensor_value_info(output, element_type, None),
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "decider", [describe("x")], results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def sample_near(threshold):
    """One in eight scores lies so near a threshold that FP16 puts it on the other side."""
    values = np.linspace(-1, 1, 32, dtype=np.float32)
    values[::8] = np.arctanh(np.float32(threshold)) + np.float32(1e-6)
    return {"x": values.reshape(SHAPE)}


@pytest.mark.parametrize(
    ("output", "element_type"),
    [
        ("mask", TensorProto.BOOL),
        ("labels", TensorProto.INT64),
        ("count", TensorProto.INT32),
        ("places", TensorProto.INT64),
    ],
)
def test_decisions_that_fp16_turns_are_no_matter_of_decibels(output, element_type):
    model = make_decider(output, element_type)
    result = apply_fp16(model, [sample_near(0.01)])
    assert result.sqnr_db["scores"] > 60
    assert output in result.sqnr_db


def test_most_decisions_turned_are_refused():
    values = np.full(32, np.arctanh(np.float32(0.01)) + np.float32(1e-6), np.float32)
    values[::4] = 1
    with pytest.raises(InputError, match="25% of the values of output 'mask' stay"):
        apply_fp16(make_decider("mask", TensorProto.BOOL), [{"x": values.reshape(SHAPE)}])


def test_what_is_gathered_at_the_best_peaks_is_measured_at_what_it_is_chosen_from():
    """Scores that FP16 cannot tell apart change places, and their sizes with them."""
    constants = {
        "count": np.asarray([8]),
        "flat": np.asarray([1, -1]),
        "six": np.float32(6),
    }
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["row"]),
        helper.make_node("Tanh", ["row"], ["scores"]),
        helper.make_node("Mul", ["row", "six"], ["angles"]),
        helper.make_node("Sin", ["angles"], ["sizes"]),
        helper.make_node("TopK", ["scores", "count"], ["best", "places"], axis=1),
        helper.make_node("GatherElements", ["sizes", "places"], ["chosen"], axis=1),
    ]
    outputs = [
        helper.make_tensor_value_info("chosen", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("places", TensorProto.INT64, None),
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "peaks", [describe("x")], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    values = np.linspace(4, 4.5, 32, dtype=np.float32).reshape(SHAPE)
    result = apply_fp16(onnx.shape_inference.infer_shapes(model), [{"x": values}])
    assert result.sqnr_db["chosen"] > 30
    assert result.sqnr_db["places"] > 30
