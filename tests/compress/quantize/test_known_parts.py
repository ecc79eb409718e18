"""Parts of an output are found, and measured, where only folded constants tell its shapes."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from artifacts.output_parts import OutputPart, read_output_parts
from compress.compare import compare_models
from compress.head_judge import HeadJudge
from compress.quantize.known_parts import read_known_parts


def make_detector(scores: float = 1.0) -> onnx.ModelProto:
    """Joins boxes in pixels, of a shape that is computed in float, and scores."""
    weights = {
        "pixels": np.float32(400),
        "gain": np.float32(scores),
    }
    nodes = [
        helper.make_node("Constant", [], ["sizes"], value_floats=[1.2, 4.3, 6.4]),
        helper.make_node("Floor", ["sizes"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["target"], to=onnx.TensorProto.INT64),
        helper.make_node("Mul", ["x", "pixels"], ["wide"]),
        helper.make_node("Reshape", ["wide", "target"], ["shaped"]),
        helper.make_node("Abs", ["shaped"], ["boxes"]),
        helper.make_node("Mul", ["x", "gain"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 6])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


SAMPLES = [{"x": np.random.default_rng(3).normal(size=(1, 4, 6)).astype(np.float32)}]


def test_parts_behind_a_computed_shape_are_found():
    model = make_detector()
    before = model.SerializeToString(deterministic=True)
    assert read_output_parts(model) == ()
    assert read_known_parts(model) == (OutputPart("y", 1, 0, 4), OutputPart("y", 1, 4, 8))
    assert read_known_parts(model, ["boxes"]) == ()
    assert model.SerializeToString(deterministic=True) == before


def test_scores_beside_boxes_of_a_computed_shape_are_compared_and_judged():
    reference, worse = make_detector(), make_detector(scores=0.8)
    found = compare_models(reference, worse, SAMPLES)
    whole_db, scores_db = found["outputs"]["y"]["sqnr_db"], found["parts"]["y[:, 4:8]"]["sqnr_db"]
    assert scores_db < whole_db - 20
    judged = HeadJudge.of_outputs(reference, SAMPLES).measure(worse)
    assert judged["y[:, 4:8]"] == pytest.approx(scores_db, abs=0.01)
