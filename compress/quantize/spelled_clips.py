"""Writes Max and Min with one constant number as the Relu and Clip that they are.

    max(x, 0) = relu(x)        min(max(x, low), high) = clip(x, low, high)

JAX's exporters write all activations so. Runtimes compute a Relu or Clip in the kernel of the Conv
before it, or in the quantizer behind it, and placements look for these names.
"""

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Graph

BOUNDED = frozenset({"Max", "Min"})


def join_spelled_clips(graph: Graph) -> list[str]:
    """Writes each such node in place; returns a line for each."""
    done = []
    for place, node in enumerate(graph.nodes):
        found = _find(graph, node) if node.op_type in BOUNDED else None
        if found is None:
            continue
        kind = node.op_type
        graph.nodes[place] = _write(graph, node, *found)
        graph.index()
        done.append(f"wrote {node.name} ({kind}) as a {graph.nodes[place].op_type}")
    return done


def _find(graph: Graph, node: onnx.NodeProto) -> tuple[str, float] | None:
    """Returns the computed operand and the number beside it; None where there are no such two."""
    if len(node.input) != 2:
        return None
    for data, bound in (node.input, reversed(node.input)):
        value, shape = graph.weights.get(bound), graph.shapes.get(data)
        is_number = value is not None and value.size == 1
        if value is None or not is_number or shape is None or data in graph.weights:
            continue
        if data in graph.float32 and value.ndim <= len(shape):
            return data, float(value.item())
    return None


def _write(graph: Graph, node: onnx.NodeProto, data: str, bound: float) -> onnx.NodeProto:
    if node.op_type == "Max":
        if bound == 0:
            return helper.make_node("Relu", [data], node.output, node.name)
        return _clip(graph, node, data, bound, None)
    maker = graph.producer(data)
    if maker is not None and graph.sole_consumer(data) is node:
        low = _read_low(graph, maker)
        if low is not None and low <= bound:
            return _clip(graph, node, maker.input[0], low, bound)
    return _clip(graph, node, data, None, bound)


def _read_low(graph: Graph, node: onnx.NodeProto) -> float | None:
    """Returns the lower bound of a node that has no upper one."""
    if node.op_type == "Relu":
        return 0.0
    has_low_only = node.op_type == "Clip" and len(node.input) == 2
    low = graph.weights.get(node.input[1]) if has_low_only else None
    return None if low is None else float(low.item())


def _clip(
    graph: Graph, node: onnx.NodeProto, data: str, low: float | None, high: float | None
) -> onnx.NodeProto:
    names = [data]
    for value, kind in ((low, "low"), (high, "high")):
        name = "" if value is None else graph.unused_name(f"{node.name}_{kind}")
        if value is not None:
            graph.weights[name] = np.asarray(value, np.float32)
        names.append(name)
    if not names[-1]:
        names.pop()
    return helper.make_node("Clip", names, node.output, node.name)
