import numpy as np
import onnx
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
