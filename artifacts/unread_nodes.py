"""Nodes whose results nothing in a graph reads any more."""

from collections.abc import Collection, Sequence

import onnx

from artifacts.graph_reading import read_tensors


def keep_read_nodes(
    nodes: Sequence[onnx.NodeProto], outputs: Collection[str]
) -> list[onnx.NodeProto]:
    """Returns the nodes that the outputs are computed with, in their order.

    Args:
        nodes: in topological order.
        outputs: of the graph.
    """
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            needed.update(read_tensors(node))
            kept.append(node)
    return kept[::-1]
