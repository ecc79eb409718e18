"""Integers behind a reduction that OpenVINO gets wrong.

    x - GlobalMaxPool - Conv - Sigmoid - Mul(x, .)               channel attention
    x - ReduceMax, ReduceMean - Concat - Conv                    a volume seen from above
    x - ReduceMean(tokens) - BatchNormalization - Gemm           the head of LeViT

`artifacts/openvino_reductions.py` says which. The result is 0 to 20 dB of what the graph says,
whatever the zero_point. Other sums, products, means and norms are right. Extrema are right with a
guard in front of the quantizer. For scaled channels there is none, as they are misread before it:
what reads these stays in float. Behind an Expand or a Tile, which gives the maximum back to every
place (PointNet), all is right.
"""

from collections.abc import Mapping, Set

import onnx

from artifacts.openvino_reductions import EXTREMA, Reduced, find_reduced
from compress.quantize.graph import Graph
from compress.quantize.placement.layers import LAYERS
from compress.quantize.placement.movement import moved_inputs

REPEATING = frozenset({"Expand", "Tile"})
"""Operators that OpenVINO moves no quantizer past."""


def find_layers_behind_reduction(graph: Graph) -> dict[str, str]:
    """Finds the layers that read what OpenVINO miscomputes: by name, why they stay in float.

    Movement, and operators that compute from that one tensor, may stand between.
    """
    reasons: dict[str, str] = {}
    reduced = find_reduced(graph.nodes, graph.shapes.get, graph.weights.get)
    sources: dict[str, str] = {}
    for node in graph.nodes:
        source = _find_source(graph, node, sources, reduced)
        if source and node.op_type in LAYERS:
            reasons[node.name] = f"OpenVINO misreads integers behind {source}"
        elif source:
            sources |= dict.fromkeys((str(name) for name in node.output), source)
    return reasons


def find_unscalable(graph: Graph) -> set[str]:
    """Finds the tensors whose product with a constant per channel OpenVINO would misread."""
    reduced = find_reduced(graph.nodes, graph.shapes.get, graph.weights.get)
    return {
        name
        for name, item in reduced.items()
        if graph.shapes.get(name) in (None, item.shape) or item.is_misread
    }


def holds_extrema(graph: Graph, node: onnx.NodeProto, known: Set[str]) -> bool:
    """Returns whether a node gives maxima or minima, moved or computed from nothing else.

    SiLU, which is x Sigmoid(x), is computed from one of them twice.

    Args:
        graph: holds the node.
        node: of any operator.
        known: the tensors before it that do.
    """
    if node.op_type in EXTREMA:
        return True
    computed = set(graph.computed_inputs(node))
    if node.op_type in LAYERS | REPEATING or not computed:
        return False
    return computed <= known or not known.isdisjoint(_passed_inputs(graph, node))


def _find_source(
    graph: Graph, node: onnx.NodeProto, sources: Mapping[str, str], reduced: Mapping[str, Reduced]
) -> str:
    """Returns what is misread behind a node, because of it or of those before; empty if nothing."""
    own = reduced.get(node.output[0])
    passed = _passed_inputs(graph, node)
    known = next((sources[name] for name in passed if name in sources), "")
    if known or own is None or not own.is_misread:
        return known
    return f"channels that are scaled behind a reduction ('{node.name}')"


def _passed_inputs(graph: Graph, node: onnx.NodeProto) -> list[str]:
    """Returns what a node moves, or the one tensor that it computes from; else nothing."""
    computed = graph.computed_inputs(node)
    if node.op_type in REPEATING or (len(computed) > 1 and not moved_inputs(graph, node)):
        return []
    return computed
