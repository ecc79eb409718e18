"""A guard between products of matrices and what OpenVINO misreads their channels behind.

    MatMul - Unsqueeze(-1)                 weights of values, one for each channel
    MatMul - MaxPool, AveragePool, Resize  of rows, along their channels

`artifacts/openvino_rescaling.py` says why. The network is refused; a MaxPool with a stride of 1
gives other values. A LeakyRelu of slope 1 in front (`artifacts/openvino_guard.py`) keeps the
rescaling where it is.
"""

import onnx

from artifacts.openvino_rescaling import PASSED, misreads_last_channels
from compress.quantize.graph import Graph
from compress.quantize.placement.node_writing import guard_input, replace_nodes


def guard_last_channels(graph: Graph) -> list[str]:
    """Inserts the guards in place; returns the names of the nodes that read them."""
    guarded: dict[str, str] = {}

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        tensor = next(iter(node.input), "")
        shapes = [graph.shapes.get(name) for name in (tensor, next(iter(node.output), ""))]
        if not misreads_last_channels(node, *shapes) or not _is_product(graph, tensor):
            return None
        if tensor in guarded:
            node.input[0] = guarded[tensor]
            return [node]
        guard = guard_input(graph, node)
        guarded[tensor] = guard.output[0]
        return [guard, node]

    return replace_nodes(graph, write)


def _is_product(graph: Graph, tensor: str) -> bool:
    """Whether a MatMul with constants makes a tensor, or its last axis at least."""
    node = graph.maker_beyond(tensor, PASSED)
    return node is not None and node.op_type == "MatMul" and node.input[1] in graph.weights
