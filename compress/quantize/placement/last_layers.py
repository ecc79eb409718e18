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
from compress.quantize.layer_work import count_macs
from compress.quantize.placement.contract import Declined, QuantizedNode, leave_in_float
from compress.quantize.placement.layers import LAYERS
from compress.quantize.placement.vector_layers import MOST_WEIGHTS

MOST_WORK = 0.002
"""Share of the multiplications of all layers that these layers may take together."""
MOST_KERNEL_WORK = 0.01
"""The same where each layer counts as one of whole `KERNEL_CHANNELS`: a map of one channel takes as
long as one of 16."""
KERNEL_CHANNELS = 16
BYTES_MORE = 2
"""That a value in FP16 takes than in INT8, written once and read once."""
REASON = "no layer follows, and it takes next to no time in float"


def keep_last_in_float(
    graph: Graph, quantized: Sequence[QuantizedNode], most_traffic: float
) -> tuple[list[QuantizedNode], list[Declined]]:
    """Returns the nodes without such layers, and these.

    Layers that read the same tensor stay in float together, and only where nobody else reads it: a
    tensor that is read in integers and in float takes a quantizer of its own. Those of the least
    work come first. None has more than `MOST_WEIGHTS`: to read them takes time.

    Args:
        graph: the simplified float graph.
        quantized: the nodes that would be quantized.
        most_traffic: bytes that these layers may move more in FP16 than in INT8, as a share of what
            all layers move in INT8.
    """
    layers = {item.node for item in quantized if item.weight is not None}
    work = {
        str(node.name): count
        for node in graph.nodes
        if node.name in layers and (count := count_macs(graph, node)) is not None
    }
    all_work = sum(work.values())
    all_moved = sum(_count_moved(graph, graph.node(name)) for name in work)
    left = [MOST_WORK * all_work, MOST_KERNEL_WORK * all_work, most_traffic * all_moved]
    last: set[str] = set()
    for tensor, names in _group_last(graph, work):
        takes = (
            sum(work[name] for name in names),
            sum(work[name] * _pad_channels(graph, graph.node(name)) for name in names),
            BYTES_MORE * _count_values(graph, tensor),
        )
        if all(part <= most for part, most in zip(takes, left, strict=True)):
            left = [most - part for part, most in zip(takes, left, strict=True)]
            last |= set(names)
    return leave_in_float(quantized, last, REASON)


def _pad_channels(graph: Graph, node: onnx.NodeProto) -> float:
    """Returns how many times its output channels a layer's kernel computes."""
    is_picture = node.op_type in ("Conv", "ConvTranspose")
    channels = graph.shapes[node.output[0]][1 if is_picture else -1]
    return math.ceil(channels / KERNEL_CHANNELS) * KERNEL_CHANNELS / channels


def _count_moved(graph: Graph, node: onnx.NodeProto) -> int:
    """Returns how many values a layer reads and writes."""
    return sum(_count_values(graph, name) for name in (*node.input[:2], node.output[0]))


def _count_values(graph: Graph, name: str) -> int:
    """Returns the values of a tensor; 0 where its shape is not known."""
    weight = graph.weights.get(name)
    return math.prod(graph.shapes.get(name, (0,))) if weight is None else int(weight.size)


def _group_last(graph: Graph, work: Mapping[str, int]) -> list[tuple[str, list[str]]]:
    """Returns the tensors that last layers alone read, with these layers; the least work first."""
    leading = find_leading(graph)
    groups: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        is_small = node.name in work and graph.weights[node.input[1]].size <= MOST_WEIGHTS
        if is_small and leading.isdisjoint(node.output):
            groups[node.input[0]].append(str(node.name))
    alone = [
        (tensor, names)
        for tensor, names in groups.items()
        if len(names) == len(graph.consumers(tensor))
    ]
    return sorted(alone, key=lambda item: sum(work[name] for name in item[1]))


def find_leading(graph: Graph) -> set[str]:
    """Returns the tensors that layers read, or what becomes something that layers read."""
    leading: set[str] = set()
    for node in reversed(graph.nodes):
        if node.op_type in LAYERS or not leading.isdisjoint(node.output):
            leading.update(read_tensors(node))
    return leading
