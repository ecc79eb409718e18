"""GatherElements that leaves a part of its data unread, in forms that OpenVINO compiles.

ONNX lets indices be shorter than the data along every axis, as PyTorch's `gather` does: a
detector's best boxes are gathered from a tensor that holds its scores too. OpenVINO 2026.4 wants
both to be equally long along all axes but the one that is gathered along. So missing indices are
made up, and what they gather is cut off.

It breaks even files that keep to that: it takes out a Slice in front of GatherElements where the
Slice begins with the first element. A Split that leaves the rest unread is not taken out.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.node_writing import describe_tensor, replace_nodes, slice_axis

_STARTS, _STEPS = 1, 4


def write_partial_gathers(graph: Graph) -> list[str]:
    """Writes them in place, also behind decisions; returns the names of the nodes concerned."""
    gathers = [node for node in (*graph.nodes, *graph.tail) if node.op_type == "GatherElements"]
    gathered = {node.input[0] for node in gathers}

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if node.op_type == "Slice" and node.output[0] in gathered:
            return _split(graph, node, _find_cut(graph, node))
        if node.op_type == "GatherElements":
            return _gather_whole(graph, node, _find_partly_read(graph, node))
        return None

    return replace_nodes(graph, write, with_tail=True)


def _find_cut(graph: Graph, node: onnx.NodeProto) -> dict[int, int]:
    """Returns how much a Slice leaves of each axis; nothing where it leaves no first elements."""
    starts = graph.weights.get(node.input[_STARTS])
    steps = graph.weights.get(node.input[_STEPS]) if len(node.input) > _STEPS else np.ones(1)
    if starts is None or np.any(starts != 0) or steps is None or np.any(steps != 1):
        return {}
    return _shorter_axes(_shape(graph, node.input[0]), _shape(graph, node.output[0]))


def _find_partly_read(graph: Graph, node: onnx.NodeProto) -> dict[int, int]:
    """Returns how much GatherElements reads of each other axis that it does not read whole."""
    data, indices = node.input
    shape = _shape(graph, indices)
    cut = _shorter_axes(_shape(graph, data), shape)
    along = attribute(node, "axis", 0)
    cut.pop(along + len(shape) if along < 0 else along, None)
    return cut


def _shape(graph: Graph, tensor: str) -> tuple[int, ...]:
    """Returns a tensor's shape; nothing where it is not known."""
    value = graph.weights.get(tensor)
    return graph.shapes.get(tensor, ()) if value is None else value.shape


def _shorter_axes(whole: tuple[int, ...], part: tuple[int, ...]) -> dict[int, int]:
    """Returns the length of each axis of `part` that is shorter than that of `whole`."""
    if len(whole) != len(part):
        return {}
    pairs = zip(whole, part, strict=True)
    return {axis: short for axis, (size, short) in enumerate(pairs) if 0 < short < size}


def _split(
    graph: Graph, node: onnx.NodeProto, lengths: Mapping[int, int]
) -> list[onnx.NodeProto] | None:
    """Returns Splits, one behind the other, that keep the first elements of each axis."""
    nodes: list[onnx.NodeProto] = []
    tensor, shape = node.input[0], list(_shape(graph, node.input[0]))
    for axis, length in lengths.items():
        halves = [length, shape[axis] - length]
        sizes = graph.add_integers(f"{node.name}_axis_{axis}_sizes", halves)
        shape[axis] = length
        kept = describe_tensor(graph, f"{node.name}_axis_{axis}", tensor, shape)
        rest = graph.unused_name(f"{kept}_rest")
        nodes.append(helper.make_node("Split", [tensor, sizes], [kept, rest], kept, axis=axis))
        tensor = kept
    if nodes:
        nodes[-1].output[0] = node.output[0]
    return nodes or None


def _gather_whole(
    graph: Graph, node: onnx.NodeProto, lengths: Mapping[int, int]
) -> list[onnx.NodeProto] | None:
    """Returns nodes that gather with more indices, and cut off what these gather."""
    if not lengths:
        return None
    data, indices = node.input
    whole = graph.shapes[data]
    behind = [whole[axis] - lengths.get(axis, whole[axis]) for axis in range(len(whole))]
    pads = graph.add_integers(f"{node.name}_pads", [0] * len(whole) + behind)
    more = graph.unused_name(f"{node.name}_indices")
    along = attribute(node, "axis", 0)
    shape = list(whole)
    shape[along] = _shape(graph, indices)[along]
    tensor = describe_tensor(graph, f"{node.name}_whole", data, shape)
    nodes = [
        helper.make_node("Pad", [indices, pads], [more], more),
        helper.make_node("GatherElements", [data, more], [tensor], tensor, axis=along),
    ]
    for axis, length in lengths.items():
        nodes.append(slice_axis(graph, tensor, axis, (0, length), f"{node.name}_axis_{axis}"))
        tensor = nodes[-1].output[0]
    nodes[-1].output[0] = node.output[0]
    return nodes
