"""Writes PReLU and LeakyReLU as one node where an exporter spelled them out.

    relu(x) + slope * min(x, 0)

Keras computes the second term as -slope * relu(-x), older TensorFlow code as
slope * (x - |x|) / 2. Runtimes compute a PRelu or LeakyRelu in the kernel of the Conv before it,
and none of them knows these sums.
"""

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Array, Graph


def join_spelled_prelus(graph: Graph) -> list[str]:
    """Joins each such sum in place; what it no longer needs stays. Returns a line for each."""
    done = []
    for place, node in enumerate(graph.nodes):
        if node.op_type not in ("Add", "Sub"):
            continue
        found = _find(graph, node)
        if found is not None:
            graph.nodes[place] = _write(graph, node, *found)
            graph.index()
            done.append(f"joined {node.name} and what it adds to a {graph.nodes[place].op_type}")
    return done


def _find(graph: Graph, node: onnx.NodeProto) -> tuple[str, Array] | None:
    """Returns the x of a sum and the slope of its negative values; None if it is no such sum."""
    orders = [(0, 1)] if node.op_type == "Sub" else [(0, 1), (1, 0)]
    for first, second in orders:
        relu = graph.producer(node.input[first])
        negative = _read_negative(graph, node.input[second])
        if relu is None or relu.op_type != "Relu" or negative is None:
            continue
        data, slope = negative
        if relu.input[0] == data and _fits(graph, data, slope):
            return data, -slope if node.op_type == "Sub" else slope
    return None


def _fits(graph: Graph, data: str, slope: Array) -> bool:
    """Tells whether a PRelu may read x and this slope."""
    shape = graph.shapes.get(data)
    if shape is None or data not in graph.float32:
        return False
    return slope.ndim <= len(shape) and np.broadcast_shapes(slope.shape, shape) == shape


def _read_negative(graph: Graph, tensor: str) -> tuple[str, Array] | None:
    """Returns x and the factor, where a tensor is factor * min(x, 0)."""
    factor = np.ones((), np.float64)
    while (node := graph.producer(tensor)) is not None:
        base = _read_base(graph, node)
        if base is not None:
            data, sign = base
            return data, factor * sign
        constants = [graph.weights[name] for name in node.input if name in graph.weights]
        computed = [name for name in node.input if name not in graph.weights]
        if len(computed) != 1:
            return None
        if node.op_type == "Mul" and len(constants) == 1:
            factor = factor * constants[0]
        elif node.op_type == "Neg":
            factor = -factor
        else:
            return None
        tensor = computed[0]
    return None


def _read_base(graph: Graph, node: onnx.NodeProto) -> tuple[str, float] | None:
    """Returns x and the factor, where a node computes relu(-x) or x - |x|."""
    if node.op_type == "Relu":
        before = graph.producer(node.input[0])
        return (before.input[0], -1.0) if before is not None and before.op_type == "Neg" else None
    if node.op_type == "Sub":
        other = graph.producer(node.input[1])
        is_absolute = other is not None and other.op_type == "Abs"
        if other is not None and is_absolute and other.input[0] == node.input[0]:
            return node.input[0], 2.0
    return None


def _write(graph: Graph, node: onnx.NodeProto, data: str, slope: Array) -> onnx.NodeProto:
    values = slope.astype(np.float32)
    if np.ptp(values) == 0:
        alpha = float(values.flat[0])
        return helper.make_node("LeakyRelu", [data], node.output, node.name, alpha=alpha)
    while values.ndim > 1 and values.shape[0] == 1:
        values = values[0]
    name = graph.unused_name(f"{node.name}_slope")
    graph.weights[name] = values
    return helper.make_node("PRelu", [data, name], node.output, node.name)
