"""The order of a graph's nodes: each behind those whose results it reads."""

import heapq
from collections import defaultdict
from collections.abc import Sequence

import onnx

from artifacts.graph_checks import node_subgraphs
from artifacts.graph_reading import read_tensors


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Puts nodes into topological order, those of subgraphs too; what is in order stays as it is.

    The format demands that order, but onnxruntime runs files without it, and converters write such:
    those to float16 put the casts of the inputs behind all other nodes.

    Args:
        graph: it is edited, unless nodes read each other in a circle, which no order resolves.
    """
    for node in graph.node:
        for subgraph in node_subgraphs(node):
            sort_nodes(subgraph)
    order = _find_order(graph.node)
    if len(order) == len(graph.node) and order != sorted(order):
        nodes = [graph.node[at] for at in order]
        del graph.node[:]
        graph.node.extend(nodes)


def _find_order(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """Returns places of nodes, of those that can come next always the first; none of a circle."""
    made = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    readers = defaultdict(list)
    missing = []
    for at, node in enumerate(nodes):
        makers = {made[name] for name in read_tensors(node) if name in made}
        missing.append(len(makers))
        for maker in makers:
            readers[maker].append(at)
    ready = [at for at, count in enumerate(missing) if not count]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    return order
