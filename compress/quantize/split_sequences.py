"""Parts of a tensor that pass through a sequence, taken from it directly.

Exporters write a split as SplitToSequence and a SequenceAt for each part where they are not asked
to optimize. Neither TensorRT nor a placement sees through a sequence.
"""

import onnx
from onnx import helper

from compress.quantize.graph import Graph, attribute


def split_sequences(graph: Graph) -> list[str]:
    """Writes SplitToSequence as Split where only SequenceAt with constant places read it."""
    done = []
    for node in [node for node in graph.nodes if node.op_type == "SplitToSequence"]:
        sizes, readers = _find_sizes(graph, node), graph.consumers(node.output[0])
        places = [_find_place(graph, reader, len(sizes)) for reader in readers]
        if not sizes or node.output[0] in graph.outputs or None in places:
            continue
        _write_split(graph, node, sizes)
        for reader, place in zip(readers, places, strict=True):
            reader.op_type = "Identity"
            reader.input[:] = [node.output[place or 0]]
        graph.index()
        done.append(f"wrote {node.name} as a Split")
    return done


def _find_sizes(graph: Graph, node: onnx.NodeProto) -> list[int]:
    """Returns the length of every part; nothing where that is not known."""
    split = graph.weights.get(node.input[1]) if len(node.input) > 1 else None
    shape = graph.shapes.get(node.input[0])
    if split is None or not shape or not split.all():
        return []
    if split.ndim:
        return [int(size) for size in split]
    length, size = shape[attribute(node, "axis", 0)], int(split)
    return [min(size, length - start) for start in range(0, length, size)]


def _find_place(graph: Graph, reader: onnx.NodeProto, count: int) -> int | None:
    place = graph.weights.get(reader.input[1]) if reader.op_type == "SequenceAt" else None
    if place is None or not -count <= int(place) < count:
        return None
    return int(place) % count


def _write_split(graph: Graph, node: onnx.NodeProto, sizes: list[int]) -> None:
    source, sequence, axis = node.input[0], node.output[0], attribute(node, "axis", 0)
    lengths = graph.add_integers(f"{node.name}_sizes", sizes)
    node.op_type = "Split"
    node.input[:] = [source, lengths]
    node.output[:] = [graph.unused_name(f"{sequence}_{place}") for place in range(len(sizes))]
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("axis", axis))
    for name, size in zip(node.output, sizes, strict=True):
        shape = list(graph.shapes.get(source, ()))
        shape[axis] = size
        graph.shapes[name] = tuple(shape)
        if source in graph.float32:
            graph.float32.add(name)
