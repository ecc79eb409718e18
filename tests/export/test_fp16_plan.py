import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.fp16_check import run_model
from export.precision import apply_fp16

HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT


@pytest.mark.parametrize(
    ("operands", "precision"),
    [(("a", "limit"), HALF), (("limit", "a"), HALF), (("a", "b"), HALF), (("a", "e"), SINGLE)],
    ids=["a constant", "a constant first", "two halves", "a single"],
)
def test_both_operands_of_a_comparison_have_one_type(operands, precision):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["x"], ["b"]),
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Greater", operands, ["is_more"], "greater"),
        helper.make_node("Where", ["is_more", "a", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info("x", SINGLE, [1, 2, 4, 4])],
        [helper.make_tensor_value_info("y", SINGLE, [1, 2, 4, 4])],
        [numpy_helper.from_array(np.float32(0.3), "limit")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    sample = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 2, 4, 4)}
    result = apply_fp16(onnx.shape_inference.infer_shapes(model), [sample])
    inferred = onnx.shape_inference.infer_shapes(result.model, check_type=True, strict_mode=True)
    values = (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output)
    kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    kinds |= {tensor.name: tensor.data_type for tensor in inferred.graph.initializer}
    greater = next(node for node in inferred.graph.node if node.name == "greater")
    assert {kinds[name] for name in greater.input} == {precision}
    (wanted,), (got,) = run_model(model, [sample]), run_model(result.model, [sample])
    np.testing.assert_allclose(got["y"], wanted["y"], atol=1e-3)


@pytest.mark.parametrize(
    ("operator", "weights"), [("RMSNormalization", ["gain"]), ("LayerNormalization", ["gain"])]
)
def test_what_a_norm_reads_is_typed_as_its_result(operator, weights):
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node(operator, ["a", *weights], ["y"], "norm", axis=-1),
        ],
        "norm",
        [helper.make_tensor_value_info("x", SINGLE, [1, 2, 4, 4])],
        [helper.make_tensor_value_info("y", SINGLE, [1, 2, 4, 4])],
        [numpy_helper.from_array(np.linspace(0.5, 2, 4, dtype=np.float32), "gain")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    sample = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 2, 4, 4)}
    result = apply_fp16(onnx.shape_inference.infer_shapes(model), [sample])
    assert result.counts == {"int8": 0, "fp16": 2, "fp32": 0}
    assert min(result.sqnr_db.values()) > 50


def test_a_sequence_keeps_the_type_of_its_tensors():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("SequenceConstruct", ["a", "a"], ["both"]),
        helper.make_node("SequenceAt", ["both", "one"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "sequence",
        [helper.make_tensor_value_info("x", SINGLE, [1, 2, 4, 4])],
        [helper.make_tensor_value_info("y", SINGLE, [1, 2, 4, 4])],
        [numpy_helper.from_array(np.int64(1), "one")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    sample = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 2, 4, 4)}
    result = apply_fp16(onnx.shape_inference.infer_shapes(model), [sample])
    (wanted,), (got,) = run_model(model, [sample]), run_model(result.model, [sample])
    np.testing.assert_allclose(got["y"], wanted["y"], atol=1e-3)
