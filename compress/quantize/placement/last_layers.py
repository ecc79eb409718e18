"""Layers behind which no other layer comes, and which do next to nothing of the network's work.

Nothing behind them evens out what rounding does to their result, which is an output of the network
or becomes one. In float they take hardly any time, and bring up to 14 dB (docs/placement.md).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from artifacts.graph_reading import read_tensors
from compress.quantize.graph import Graph
from compress.quantize.placement.contract import Declined, QuantizedNode, leave_in_float
from compress.quantize.placement.layers import LAYERS, count_multiplications

MOST_WORK = 0.002
"""Share of the multiplications of all layers that these layers may take together."""
REASON = "no layer follows, and it takes next to no time in float"


def keep_last_in_float(
    graph: Graph, quantized: Sequence[QuantizedNode]
) -> tuple[list[QuantizedNode], list[Declined]]:
    """Returns the nodes without such layers, and these.

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
    left = MOST_WORK * sum(work.values())
    last: set[str] = set()
    for takes, names in sorted(_group_last(graph, work)):
        left -= takes
        if left >= 0:
            last |= set(names)
    return leave_in_float(quantized, last, REASON)


def _group_last(graph: Graph, work: Mapping[str, int]) -> list[tuple[int, list[str]]]:
    """Returns the last layers that alone read a tensor, and the work of each such group."""
    leading = _find_leading(graph)
    groups: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        if node.name in work and leading.isdisjoint(node.output):
            groups[node.input[0]].append(str(node.name))
    return [
        (sum(work[name] for name in names), names)
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
