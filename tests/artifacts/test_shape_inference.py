import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.shape_inference import infer_shapes


def chain(operator: str, size: int, **attributes):
    """Three convolutions with an operator of a scale and a bias between each two."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c0"], pads=[1] * 4)]
    for number in range(2):
        norm = [f"c{number}", "s", "b"], [f"n{number}"]
        nodes.append(helper.make_node(operator, *norm, f"norm{number}", **attributes))
        nodes.append(
            helper.make_node("Conv", [f"n{number}", "w"], [f"c{number + 1}"], pads=[1] * 4)
        )
    weights = {"w": np.ones((8, 8, 3, 3)), "s": np.ones(size), "b": np.zeros(size)}
    tensors = [
        numpy_helper.from_array(value.astype(np.float32), key) for key, value in weights.items()
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, 5, 6)) for name in ("x", "c2")
    ]
    graph = helper.make_graph(nodes, "test", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("is_strict", [False, True])
def test_group_norms_are_inferred_too_and_the_model_stays(is_strict):
    model = chain("GroupNormalization", 8, num_groups=4)
    before = model.SerializeToString(deterministic=True)
    inferred = infer_shapes(model, is_strict=is_strict)
    assert model.SerializeToString(deterministic=True) == before
    known = {item.name: item.type.tensor_type for item in inferred.graph.value_info}
    assert set(known) == {"c0", "n0", "c1", "n1"}
    assert all([dim.dim_value for dim in item.shape.dim] == [1, 8, 5, 6] for item in known.values())
    assert [list(node.input) for node in inferred.graph.node] == [
        list(node.input) for node in model.graph.node
    ]


def test_a_contradiction_is_raised_and_the_model_stays():
    model = chain("GroupNormalization", 8, num_groups=4)
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 7
    before = model.SerializeToString(deterministic=True)
    with pytest.raises(onnx.shape_inference.InferenceError):
        infer_shapes(model, is_strict=True)
    assert model.SerializeToString(deterministic=True) == before


def keep_boxes():
    """The boxes whose score is positive, clipped and reshaped as torchvision's detectors do it."""
    nodes = [
        helper.make_node("Greater", ["scores", "zero"], ["is_kept"]),
        helper.make_node("NonZero", ["is_kept"], ["places"]),
        helper.make_node("Squeeze", ["places", "axis"], ["rows"]),
        helper.make_node("Gather", ["boxes", "rows"], ["kept"]),
        helper.make_node("Shape", ["kept"], ["size"]),
        helper.make_node("Gather", ["size", "zeroth"], ["count"], axis=0),
        helper.make_node("Gather", ["size", "first"], ["corners"], axis=0),
        helper.make_node("Unsqueeze", ["count", "axis"], ["count_1"]),
        helper.make_node("Unsqueeze", ["corners", "axis"], ["corners_1"]),
        helper.make_node("Concat", ["count_1", "corners_1"], ["shape"], axis=0),
        helper.make_node("Slice", ["kept", "axis", "last", "first_1", "step"], ["xs"]),
        helper.make_node("Slice", ["kept", "first_1", "last", "first_1", "step"], ["ys"]),
        helper.make_node("Clip", ["xs", "zero"], ["clipped_xs"]),
        helper.make_node("Clip", ["ys", "zero"], ["clipped_ys"]),
        helper.make_node("Unsqueeze", ["clipped_xs", "step"], ["column_xs"]),
        helper.make_node("Unsqueeze", ["clipped_ys", "step"], ["column_ys"]),
        helper.make_node("Concat", ["column_xs", "column_ys"], ["clipped"], axis=2),
        helper.make_node("Reshape", ["clipped", "shape"], ["found"]),
    ]
    weights = {
        "zero": np.float32(0),
        "axis": np.array([0]),
        "zeroth": np.array(0),
        "first": np.array(1),
        "first_1": np.array([1]),
        "step": np.array([2]),
        "last": np.array([2**62]),
    }
    ends = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, (6, 4)),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, (6,)),
        helper.make_tensor_value_info("found", TensorProto.FLOAT, ("boxes_found", 4)),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), key) for key, value in weights.items()]
    graph = helper.make_graph(nodes, "boxes", ends[:2], ends[2:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("count", [0, 1, 6])
def test_a_detector_with_inferred_shapes_runs_when_it_finds_no_box(count):
    inferred = infer_shapes(keep_boxes())
    assert inferred.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "boxes_found"
    session = onnxruntime.InferenceSession(inferred.SerializeToString())
    scores = np.where(np.arange(6) < count, 1, -1).astype(np.float32)
    boxes = np.arange(24, dtype=np.float32).reshape(6, 4)
    (found,) = session.run(None, {"boxes": boxes, "scores": scores})
    np.testing.assert_array_equal(found, boxes[:count])
