"""Pad that wraps around, written as Slices and a Concat: OpenVINO 2026.4 has no conversion for it.

Panoramas and range images of a turning lidar are padded with what lies on their other side
(PyTorch's `padding_mode="circular"`).
"""

import onnx
from onnx import helper

from compress.quantize.graph import Graph, attribute
from compress.quantize.pad_amounts import read_pad_amounts
from compress.quantize.placement.node_writing import describe_tensor, replace_nodes, slice_axis


def write_wrapped_pads(graph: Graph) -> list[str]:
    """Writes Pads of mode wrap in place; returns the names of those replaced."""

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        pads = _read_pads(graph, node)
        return None if pads is None else _write_one(graph, node, pads)

    return replace_nodes(graph, write)


def _read_pads(graph: Graph, node: onnx.NodeProto) -> dict[int, tuple[int, int]] | None:
    """Returns what is put before and behind each padded axis; None where it is no wrap, or odd."""
    if node.op_type != "Pad" or attribute(node, "mode", b"constant") != b"wrap":
        return None
    pads = read_pad_amounts(graph, node)
    if pads is None:
        return None
    shape = graph.shapes[node.input[0]]
    is_plain = all(0 <= end <= shape[axis] for axis, ends in pads.items() for end in ends)
    return pads if is_plain else None


def _write_one(
    graph: Graph, node: onnx.NodeProto, pads: dict[int, tuple[int, int]]
) -> list[onnx.NodeProto]:
    nodes: list[onnx.NodeProto] = []
    tensor, shape = node.input[0], list(graph.shapes[node.input[0]])
    for axis, (before, behind) in pads.items():
        size, stem = shape[axis], f"{node.name}_axis_{axis}"
        joined = [tensor]
        if before:
            nodes.append(slice_axis(graph, tensor, axis, (size - before, size), f"{stem}_before"))
            joined.insert(0, nodes[-1].output[0])
        if behind:
            nodes.append(slice_axis(graph, tensor, axis, (0, behind), f"{stem}_behind"))
            joined.append(nodes[-1].output[0])
        shape[axis] += before + behind
        tensor = describe_tensor(graph, stem, tensor, shape)
        nodes.append(helper.make_node("Concat", joined, [tensor], tensor, axis=axis))
    if not nodes:
        return [helper.make_node("Identity", [tensor], [node.output[0]], node.name)]
    nodes[-1].output[0] = node.output[0]
    return nodes
