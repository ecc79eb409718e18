"""Products of rows and a constant matrix, written as the Gemm whose kernel takes integers best.

    MatMul [B, T, C] - Add (bias)          becomes  Reshape [B T, C] - Gemm - Reshape [B, T, N]

onnxruntime computes a MatMul in integers only with its result rounded, so a bias behind it costs an
Add and a second rounding. A Gemm takes the bias in its own kernel, and may write floats. A Reshape
copies no value.
"""

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Graph
from compress.quantize.placement.node_writing import describe_tensor

FEWEST_AXES = 3


def write_flat_products(graph: Graph) -> list[str]:
    """Rewrites the products in place; returns their names.

    Args:
        graph: in float, all channels rescaled: the repairs look for a layer right behind a norm.
    """
    written: list[onnx.NodeProto] = []
    replaced: list[str] = []
    joined: set[str] = set()
    for node in graph.nodes:
        if node.name in joined:
            continue
        if not becomes_gemm(graph, node):
            written.append(node)
            continue
        add = _find_bias(graph, node)
        joined |= set() if add is None else {add.name}
        written += _write(graph, node, add)
        replaced.append(node.name)
    graph.nodes = written
    graph.index()
    return replaced


def becomes_gemm(graph: Graph, node: onnx.NodeProto) -> bool:
    """Returns whether a node multiplies rows of a tensor with more axes and a constant matrix."""
    if node.op_type != "MatMul" or node.input[0] in graph.weights:
        return False
    weight = graph.weights.get(node.input[1])
    is_matrix = weight is not None and weight.ndim == 2 and weight.dtype == np.float32
    return is_matrix and len(graph.shapes.get(node.input[0], ())) >= FEWEST_AXES


def _find_bias(graph: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Returns the Add of a constant per column that alone reads a product, if there is one."""
    add = graph.sole_consumer(node.output[0])
    if add is None or add.op_type != "Add":
        return None
    columns = graph.weights[node.input[1]].shape[1]
    bias = graph.weights.get(_other(add, node.output[0]))
    if bias is None or bias.dtype != np.float32 or bias.size != columns:
        return None
    is_per_column = bias.shape[-1:] == (columns,)
    return add if is_per_column and bias.ndim <= len(graph.shapes[node.input[0]]) else None


def _other(add: onnx.NodeProto, tensor: str) -> str:
    return str(add.input[1] if add.input[0] == tensor else add.input[0])


def _write(graph: Graph, node: onnx.NodeProto, add: onnx.NodeProto | None) -> list[onnx.NodeProto]:
    data, result = node.input[0], node.output[0] if add is None else add.output[0]
    matrix = graph.weights[node.input[1]]
    inner, columns = matrix.shape
    *rows, _ = graph.shapes[data]
    count = int(np.prod(rows))
    names = {part: graph.unused_name(f"{node.name}_{part}") for part in ("weight", "bias")}
    graph.weights[names["weight"]] = np.ascontiguousarray(matrix.T)
    inputs = [describe_tensor(graph, f"{node.name}_rows", data, (count, inner)), names["weight"]]
    if add is not None:
        graph.weights[names["bias"]] = graph.weights[_other(add, node.output[0])].reshape(-1)
        inputs.append(names["bias"])
    product = describe_tensor(graph, f"{node.name}_product", data, (count, columns))
    flat = graph.add_integers(f"{node.name}_flat", [-1, inner])
    whole = graph.add_integers(f"{node.name}_whole", [-1, *rows[1:], columns])
    return [
        helper.make_node("Reshape", [data, flat], inputs[:1], inputs[0]),
        helper.make_node("Gemm", inputs, [product], node.name, transB=1),
        helper.make_node("Reshape", [product, whole], [result], f"{product}_whole"),
    ]
