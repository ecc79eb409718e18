"""Parts that are cut out of what was just joined, in the graph to be quantized."""

from artifacts.parted_concats import part_concats
from compress.quantize.graph import Graph


def read_members(graph: Graph) -> list[str]:
    """Lets parts of Concats be read from their members; returns a line for each."""
    parted = part_concats(graph.nodes, graph.weights, graph.shapes, graph.outputs)
    if parted is None:
        return []
    graph.nodes = parted.nodes
    graph.weights |= parted.weights
    graph.index()
    graph.drop_unused_weights()
    return [f"read what {name} cuts out of a Concat where it comes from" for name in parted.changed]
