"""What convolutions with padding read: where zero points cost time on OpenVINO.

A value outside the picture is 0.0, and its integer the zero point. A kernel that sums over several
channels has to know at each border how many such values it has seen; with zero point 0 it need not.
"""

import onnx

from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.movement import moved_inputs


def find_padded_inputs(graph: Graph) -> frozenset[str]:
    """Finds the tensors that padded Convs read, directly or behind nodes that only move values."""
    waiting = [
        node.input[0]
        for node in graph.nodes
        if node.op_type == "Conv" and _pads(node) and _sums_channels(graph, node)
    ]
    found: set[str] = set()
    while waiting:
        tensor = waiting.pop()
        if tensor in found:
            continue
        found.add(tensor)
        producer = graph.producer(tensor)
        if producer is not None:
            waiting += [producer.input[at] for at in moved_inputs(graph, producer)]
    return frozenset(found)


def _pads(node: onnx.NodeProto) -> bool:
    return any(attribute(node, "pads", ())) or attribute(node, "auto_pad", b"").startswith(b"SAME")


def _sums_channels(graph: Graph, node: onnx.NodeProto) -> bool:
    """Tells whether a Conv is not depthwise: those kernels do not care."""
    weight = graph.weights.get(node.input[1])
    return weight is not None and weight.shape[1] > 1
