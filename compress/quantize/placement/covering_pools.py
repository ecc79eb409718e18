"""AveragePool whose window is larger than what it reads, in a form that OpenVINO reads.

PyTorch takes `AvgPool2d(2560, ceil_mode=True)` for the mean of each channel, whatever the picture's
size (EfficientNet of `transformers`): what the window lacks is not counted. OpenVINO 2026.4 refuses
windows that are larger than the picture. GlobalAveragePool is the same.
"""

from typing import Any

import onnx
from onnx import helper

from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.node_writing import replace_nodes


def write_covering_pools(graph: Graph) -> list[str]:
    """Writes such pools as GlobalAveragePool, in place; returns the names of the nodes."""

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if node.op_type != "AveragePool" or not _covers(graph, node):
            return None
        return [helper.make_node("GlobalAveragePool", node.input, node.output, node.name)]

    return replace_nodes(graph, write)


def _covers(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether a pool has a single window, which holds all that it reads and more."""
    kernel: Any = attribute(node, "kernel_shape", ())
    read = graph.shapes.get(node.input[0], ())[2:]
    made = graph.shapes.get(node.output[0], ())[2:]
    is_moved = any(attribute(node, "pads", ())) or any(
        step != 1 for step in attribute(node, "dilations", ())
    )
    is_explicit = attribute(node, "auto_pad", b"NOTSET") == b"NOTSET" and not is_moved
    if not read or len(kernel) != len(read) or set(made) != {1} or not is_explicit:
        return False
    sizes = list(zip(kernel, read, strict=True))
    return all(size >= length for size, length in sizes) and any(
        size > length for size, length in sizes
    )
