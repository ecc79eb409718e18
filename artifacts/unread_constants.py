"""Constants that nothing in a graph reads any more."""

import onnx

from artifacts.graph_reading import read_tensors


def drop_unread_constants(graph: onnx.GraphProto) -> None:
    """Forgets them in place: onnxruntime warns of each, and they take up room."""
    read = {name for node in graph.node for name in read_tensors(node)}
    read |= {value.name for value in graph.output}
    kept = [item for item in graph.initializer if item.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)
