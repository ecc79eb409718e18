import numpy as np
from onnx import TensorProto, helper, numpy_helper

from export.fp16_check import remove_qdq, run_model
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


def test_a_constant_output_is_typed_and_measured_like_any_other():
    sample = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(SHAPE)}
    result = apply_fp16(make_network(), [sample])
    assert result.sqnr_db["anchors"] == np.inf
    (got,) = run_model(result.model, [sample])
    np.testing.assert_array_equal(got["anchors"], np.arange(6))
