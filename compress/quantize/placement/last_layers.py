"""Layers behind which no other layer comes, and which do next to nothing of the network's work.

Nothing behind them evens out what rounding does to their result, which is an output of the network
or becomes one. In float they take hardly any time, and bring up to 14 dB (docs/placement.md).
"""

from collections import defaultdict
from collections.abc import Sequence

import onnx

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
    work = {
        item.node: count_multiplications(graph, graph.node(item.node))
        for item in quantized
        if item.weight is not None
    }
    left = MOST_WORK * sum(count or 0 for count in work.values())
    last: set[str] = set()
    for takes, names in sorted(_group_last(graph, work)):
        left -= takes
        if left >= 0:
            last |= set(names)
    return leave_in_float(quantized, last, REASON)


def _group_last(graph: Graph, work: dict[str, int | None]) -> list[tuple[int, list[str]]]:
    """Returns the last layers that alone read a tensor, and the work of each such group."""
    groups: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.nodes:
        if node.name in work and not _is_followed(graph, node):
            groups[node.input[0]].append(node)
    found = []
    for tensor, nodes in groups.items():
        counts = [work[node.name] for node in nodes]
        if len(nodes) == len(graph.consumers(tensor)) and None not in counts:
            found.append((sum(filter(None, counts)), [str(node.name) for node in nodes]))
    return found


def _is_followed(graph: Graph, node: onnx.NodeProto) -> bool:
    """Tells whether another layer reads what becomes of a node's result."""
    held = list(node.output)
    for name in held:
        for reader in graph.consumers(name):
            if reader.op_type in LAYERS:
                return True
            held += [str(item) for item in reader.output if item and item not in held]
    return False
