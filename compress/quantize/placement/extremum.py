"""Layers behind a maximum or minimum, whose integers OpenVINO gets wrong.

    x - GlobalMaxPool - Conv - Sigmoid - Mul(x, .)               channel attention
    x - ReduceMax, ReduceMean - Concat - Conv - Sigmoid - Mul    spatial attention

OpenVINO (seen with 2026.4) computes a quantizer in the kernel of the reduction before it. For a
maximum or minimum the result is off then: 0 to 20 dB in graphs of three Convs, whatever the
zero_point, and a guard between them is fused along. Sums, products, means and norms are right. What
reads an extremum has the few values of a gate to work on, so it stays in float.
"""

import onnx

from artifacts.openvino_extrema import EXTREMA
from compress.quantize.graph import Graph
from compress.quantize.placement.layers import LAYERS
from compress.quantize.placement.movement import moved_inputs


def find_layers_behind_extremum(graph: Graph) -> dict[str, str]:
    """Finds the layers that read an extremum over an axis: by name, why they stay in float.

    Movement, and operators that compute from that one tensor, may stand between.
    """
    reasons: dict[str, str] = {}
    sources: dict[str, str] = {}
    for node in graph.nodes:
        source = _find_source(graph, node, sources)
        if source and node.op_type in LAYERS:
            reasons[node.name] = (
                f"OpenVINO misreads integers behind a maximum or minimum ('{source}')"
            )
        elif source:
            sources |= dict.fromkeys((str(name) for name in node.output), source)
    return reasons


def _find_source(graph: Graph, node: onnx.NodeProto, sources: dict[str, str]) -> str:
    """Returns the extremum that a node is, or passes on; empty if none."""
    if node.op_type in EXTREMA:
        return str(node.name)
    computed = [name for name in node.input if name and name not in graph.weights]
    if len(computed) > 1 and not moved_inputs(graph, node):
        return ""
    return next((sources[name] for name in computed if name in sources), "")
