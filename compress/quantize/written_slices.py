"""Slices that a network writes in place, in the graph to be quantized."""

from artifacts.written_slices import join_written_slices
from compress.quantize.graph import Graph


def join_slices(graph: Graph) -> list[str]:
    """Writes scatters into slices as Concats and Pads; returns a line for each that is gone."""
    written = join_written_slices(graph.nodes, graph.weights, graph.shapes, graph.outputs)
    if written is None:
        return []
    graph.nodes = written.nodes
    graph.weights |= written.weights
    graph.shapes |= written.shapes
    graph.float32 |= {
        name
        for name, source in written.sources.items()
        if source in graph.float32 or source in written.weights
    }
    graph.index()
    graph.drop_unused_weights()
    return [f"wrote {name}, which writes a slice, as what it joins" for name in written.replaced]
