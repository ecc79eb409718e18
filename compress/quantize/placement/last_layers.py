"""Layers behind which no other layer comes, and which do next to nothing of the network's work.

Nothing behind them evens out what rounding does to their result, which is an output of the network
or becomes one. In float they take hardly any time, and bring up to 14 dB (docs/placement.md). On a
GPU what they read may take longer to write and to read than to compute: that has its own limit.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import onnx

from artifacts.graph_reading import read_tensors
from compress.quantize.graph import Graph
from compress.quantize.placement.contract import Declined, QuantizedNode, leave_in_float
from compress.quantize.placement.layers import LAYERS, count_multiplications

MOST_WORK = 0.002
"""Share of the multiplications of all layers that these layers may take together."""
BYTES_MORE = 2
"""That a value in FP16 takes than in INT8, written once and read once."""
REASON = "no layer follows, and it takes next to no time in float"


def keep_last_in_float(
    graph: Graph, quantized: Sequence[QuantizedNode], most_traffic: float = math.inf
) -> tuple[list[QuantizedNode], list[Declined]]:
    """Returns the nodes without such layers, and these.

    Args:
        graph: the simplified float graph.
        quantized: the nodes that would be quantized.
        most_traffic: bytes that these layers may move more in FP16 than in INT8, as a share of what
            all layers move in INT8.

    Layers that read the same tensor stay in float together, and only where nobody else reads it: a
    tensor that is read in integers and in float takes a quantizer of its own. Those of the least
    work come first.
    """
    layers = {item.node for item in quantized if item.weight is not None}
    work = {
        str(node.name): count
        for node in graph.nodes
        if node.name in layers and (count := count_multiplications(graph, node)) is not None
    }
    work_left = MOST_WORK * sum(work.values())
    traffic_left = most_traffic * sum(_count_moved(graph, graph.node(name)) for name in work)
    last: set[str] = set()
    for takes, tensor, names in sorted(_group_last(graph, work)):
        moves = BYTES_MORE * _count_values(graph, tensor)
        if takes <= work_left and moves <= traffic_left:
            work_left, traffic_left = work_left - takes, traffic_left - moves
            last |= set(names)
    return leave_in_float(quantized, last, REASON)


def _count_moved(graph: Graph, node: onnx.NodeProto) -> int:
    """Returns how many values a layer reads and writes."""
    return sum(_count_values(graph, name) for name in (*node.input[:2], node.output[0]))


def _count_values(graph: Graph, name: str) -> int:
    """Returns the values of a tensor; 0 where its shape is not known."""
    weight = graph.weights.get(name)
    return math.prod(graph.shapes.get(name, (0,))) if weight is None else int(weight.size)


def _group_last(graph: Graph, work: Mapping[str, int]) -> list[tuple[int, str, list[str]]]:
    """Returns the last layers that alone read a tensor: their work, the tensor, and the layers."""
    leading = _find_leading(graph)
    groups: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        if node.name in work and leading.isdisjoint(node.output):
            groups[node.input[0]].append(str(node.name))
    return [
        (sum(work[name] for name in names), tensor, names)
        for tensor, names in groups.items()
        if len(names) == len(graph.consumers(tensor))
    ]


def _find_leading(graph: Graph) -> set[str]:
    """Returns the tensors that layers read, or what becomes something that layers read."""
    leading: set[str] = set()
    for node in reversed(graph.nodes):
        if node.op_type in LAYERS or not leading.isdisjoint(node.output):
            leading.update(read_tensors(node))
    return leading
