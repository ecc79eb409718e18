"""A guard between what moves values and an AveragePool that counts its border.

    MaxPool, Concat, Transpose ... - AveragePool(pads, count_include_pad)

What is moved has a quantizer in front where a layer reads it too, with a zero point where values
may be negative. `artifacts/openvino_pooling.py` says what becomes of it. A Pad in front of the pool
is made part of it, and goes the same way. Behind a LeakyRelu of slope 1
(`artifacts/openvino_guard.py`) the pool reads floats.
"""

import numpy as np
import onnx

from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.movement import moved_inputs
from compress.quantize.placement.node_writing import guard_input, replace_nodes

NEVER_NEGATIVE = frozenset(
    {"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt"}
)


def guard_padded_means(graph: Graph) -> list[str]:
    """Inserts the guards in place; returns the names of the pools behind them."""

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if node.op_type != "AveragePool" or not _counts_border(graph, node):
            return None
        tensor = node.input[0]
        sources = _find_sources(graph, tensor)
        if sources == {tensor} or all(_is_never_negative(graph, name) for name in sources):
            return None
        return [guard_input(graph, node), node]

    return replace_nodes(graph, write)


def _counts_border(graph: Graph, pool: onnx.NodeProto) -> bool:
    """Whether zeros around what a pool reads count in its means."""
    maker = graph.producer(pool.input[0])
    if maker is not None and maker.op_type == "Pad":
        return True
    return bool(attribute(pool, "count_include_pad", 0)) and any(attribute(pool, "pads", []))


def _find_sources(graph: Graph, tensor: str) -> set[str]:
    """Returns the tensors whose values are moved into a tensor; itself if none are."""
    node = graph.producer(tensor)
    moved = moved_inputs(graph, node) if node is not None else ()
    names = {node.input[place] for place in moved} if node is not None else set()
    return set().union(*(_find_sources(graph, name) for name in names)) if names else {tensor}


def _is_never_negative(graph: Graph, tensor: str) -> bool:
    node = graph.producer(tensor)
    if node is not None and node.op_type == "Clip":
        low = graph.weights.get(node.input[1]) if len(node.input) > 1 else None
        return low is not None and bool(np.all(low >= 0))
    return node is not None and node.op_type in NEVER_NEGATIVE
