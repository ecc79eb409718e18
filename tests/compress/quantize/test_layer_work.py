"""The multiply-accumulates of layers."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.quantize.graph import Graph
from compress.quantize.layer_work import arithmetic_intensity, count_macs


def one_node(operator, source, weight, result, **attributes) -> Graph:
    """A network of one node, whose result has unknown axes where `result` is None."""
    node = helper.make_node(operator, ["x", "w"], ["y"], "layer", **attributes)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", source), ("y", result))
    ]
    weights = [numpy_helper.from_array(np.ones(weight, np.float32), "w")]
    graph = helper.make_graph([node], "g", values[:1], values[1:], weights)
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


@pytest.mark.parametrize(
    ("operator", "source", "weight", "result", "attributes", "macs"),
    [
        ("Conv", (1, 4, 6, 6), (8, 2, 3, 3), (1, 8, 4, 4), {"group": 2}, 8 * 16 * 2 * 9),
        ("ConvTranspose", (1, 4, 6, 6), (4, 8, 2, 2), (1, 8, 12, 12), {}, 4 * 36 * 8 * 4),
        ("MatMul", (2, 5, 3), (3, 7), (2, 5, 7), {}, 2 * 5 * 7 * 3),
        ("Gemm", (5, 3), (3, 7), (5, 7), {}, 5 * 7 * 3),
        ("Gemm", (5, 3), (7, 3), (5, 7), {"transB": 1}, 5 * 7 * 3),
        ("Gemm", (3, 5), (3, 7), (5, 7), {"transA": 1}, 5 * 7 * 3),
        ("Gemm", (None, 3), (3, 7), (5, 7), {}, 5 * 7 * 3),
        ("Gemm", (5, 3), (3, 7), (None, 7), {}, None),
        ("ConvTranspose", (None, 4, 6, 6), (4, 8, 2, 2), (1, 8, 12, 12), {}, None),
        ("Mul", (5, 7), (1, 7), (5, 7), {}, None),
    ],
)
def test_macs_follow_from_shapes(operator, source, weight, result, attributes, macs):
    graph = one_node(operator, source, weight, result, **attributes)
    assert count_macs(graph, graph.node("layer")) == macs


def test_work_that_is_unknown_has_no_intensity():
    graph = one_node("Mul", (5, 7), (1, 7), (5, 7))
    assert arithmetic_intensity(graph, graph.node("layer")) == 0
