"""Outputs that are decisions, set aside while a network is quantized."""

from artifacts.decided_outputs import find_decided_outputs
from compress.quantize.graph import Graph


def set_decisions_aside(graph: Graph) -> list[str]:
    """Leaves the end of a network, from its decisions on, to `Graph.to_model` alone.

    Returns:
        what each decided output is measured at, a line each.
    """
    found = find_decided_outputs(graph.nodes, graph.outputs, graph.values, graph.weights)
    if not found.nodes:
        return []
    graph.tail = [node for at, node in enumerate(graph.nodes) if at in found.nodes]
    graph.nodes = [node for at, node in enumerate(graph.nodes) if at not in found.nodes]
    graph.measured = found.measured
    kept = (name for name in graph.outputs if name not in found.measured)
    graph.outputs = list(dict.fromkeys((*kept, *found.entering)))
    graph.index()
    return [
        f"output '{output}' is a decision: errors are measured at what it is made of, "
        + ", ".join(tensors)
        for output, tensors in found.measured.items()
    ]
