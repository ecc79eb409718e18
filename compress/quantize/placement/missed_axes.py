"""Reductions whose axes OpenVINO does not read, as sums of which it does.

L1 norms, log(sum(x)) and log(sum(exp(x))), see `artifacts.openvino_axes`. The exponentials are
those of differences from the maximum, which do not overflow.
"""

import onnx

from artifacts.openvino_axes import read_missed_axes
from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.node_writing import NodeWriter, replace_nodes


def write_missed_axes(graph: Graph) -> list[str]:
    """Writes such reductions as sums, in place; returns the names of the nodes."""

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        axes = read_missed_axes(node)
        if not axes:
            return None
        data = node.input[0]
        rank = len(graph.shapes.get(data, ()))
        if not rank or data not in graph.float32:
            return None
        axes = tuple(axis % rank for axis in axes)
        writer = NodeWriter(graph, node.output[0])
        reduced = _reduce(writer, node.op_type, data, axes)
        if not attribute(node, "keepdims", 1):
            writer.squeeze(reduced, axes)
        return writer.finish()

    return replace_nodes(graph, write, with_tail=True)


def _reduce(writer: NodeWriter, operator: str, data: str, axes: tuple[int, ...]) -> str:
    """Writes a reduction that keeps its axes; returns its result's name."""
    if operator == "ReduceL1":
        return writer.reduce("ReduceSum", writer.write("Abs", data), axes)
    if operator == "ReduceLogSum":
        return writer.write("Log", writer.reduce("ReduceSum", data, axes))
    largest = writer.reduce("ReduceMax", data, axes)
    shares = writer.write("Exp", writer.write("Sub", data, largest))
    return writer.write(
        "Add", writer.write("Log", writer.reduce("ReduceSum", shares, axes)), largest
    )
