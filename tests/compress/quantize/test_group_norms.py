"""GroupNorm by means of channels gives the same results."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.onnx_file import load_onnx
from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement.group_norms import write_group_norms
from compress.quantize.settings import QuantizeSettings

SHAPE = (2, 12, 5, 6)


@pytest.fixture
def picture():
    return np.random.default_rng(1).normal(3, 2, SHAPE).astype(np.float32)


def rows(groups, scale=1.0, length=-1):
    """GroupNorm as exporters write it, and its constants; each group has `scale` and a bias."""
    weights = {
        "rows": np.array([0, groups, length], np.int64),
        "scale": np.full(groups, scale, np.float32),
        "bias": np.arange(groups, dtype=np.float32) * (scale - 1),
        "picture": np.array(SHAPE, np.int64),
    }
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["a"], "to_rows"),
        helper.make_node("InstanceNormalization", ["a", "scale", "bias"], ["b"], "norm"),
        helper.make_node("Reshape", ["b", "picture"], ["y"], "to_picture"),
    ]
    return nodes, weights


@pytest.mark.parametrize("groups", [1, 3, 12])
@pytest.mark.parametrize("scale", [1.0, 1.7])
def test_rows_become_means_of_channels(groups, scale, make_model, rewrite, picture):
    nodes, weights = rows(groups, scale)
    model = make_model(nodes, weights, {"x": SHAPE}, ["y"])
    done, graph = rewrite(model, picture, write_group_norms, tolerance=2e-5)
    assert done == ["norm"]
    operators = [node.op_type for node in graph.nodes]
    assert "Reshape" not in operators
    assert operators.count("Mul") == (1 if scale == 1 else 2)


def test_the_operator_becomes_means_of_channels(rewrite, picture, tmp_path):
    """As PyTorch's newer exporter writes it; onnx itself infers no shape of its result."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(12).astype(np.float32), name) for name in "sb"
    ]
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], "norm", num_groups=3)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
    graph = helper.make_graph([node], "test", ends[:1], ends[1:], weights)
    path = tmp_path / "norm.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    done, _ = rewrite(load_onnx(path), picture, write_group_norms, tolerance=2e-5)
    assert done == ["norm"]


def test_means_far_from_zero_do_not_cancel(make_model, rewrite, picture):
    nodes, weights = rows(3)
    model = make_model(nodes, weights, {"x": SHAPE}, ["y"])
    rewrite(model, picture + 1000, write_group_norms, tolerance=1e-3)


def test_rows_of_other_values_stay(make_model):
    nodes, weights = rows(3)
    swapped = helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1])
    nodes[2].input[0] = "t"
    graph = Graph(make_model([*nodes[:2], swapped, nodes[2]], weights, {"x": SHAPE}, ["y"]))
    assert write_group_norms(graph) == []
    read = helper.make_node("Relu", ["a"], ["z"])
    nodes, weights = rows(3)
    graph = Graph(make_model([*nodes, read], weights, {"x": SHAPE}, ["y", "z"]))
    assert write_group_norms(graph) == []


def test_quantization_for_openvino_writes_them_in_float(make_model):
    rng = np.random.default_rng(0)
    nodes, weights = rows(3)
    weights["w"] = rng.standard_normal((12, 12, 3, 3)).astype(np.float32)
    nodes.append(helper.make_node("Conv", ["y", "w"], ["z"], "layer", pads=[1] * 4))
    model = make_model(nodes, weights, {"x": SHAPE}, ["z"])
    samples = [{"x": rng.random(SHAPE).astype(np.float32)}]
    result = quantize_model(model, samples, QuantizeSettings(target="openvino"))
    assert [layer.node for layer in result.layers] == ["layer"]
    left = [node.op_type for node in result.model.graph.node]
    assert "Reshape" not in left
    assert left.count("Conv") == 5
    assert left.count("QuantizeLinear") == 1
