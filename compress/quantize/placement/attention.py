"""Attention: the two products without constants, queries x keys and probabilities x values.

    MatMul(Q, K) - Mul / Div / Add - Softmax - MatMul(P, V)

TensorRT multiplies in integers only where both inputs of a MatMul are quantized, so both get a
Q/DQ pair; the Softmax between stays in float.
"""

import onnx

from compress.quantize.graph import Graph
from compress.quantize.placement.contract import Declined, QuantizedNode
from compress.quantize.placement.movement import moved_inputs

SCALING = frozenset({"Mul", "Div", "Add", "Sub", "Where"})


def quantize_attention(
    graph: Graph, node: onnx.NodeProto, slower_on: str = ""
) -> QuantizedNode | Declined | None:
    """Quantizes both inputs of a MatMul before or behind a Softmax; None for any other node.

    Args:
        graph: the simplified float graph.
        node: any node.
        slower_on: the runtime, where its integer product is slower than the float one.
    """
    if node.op_type != "MatMul" or any(name in graph.weights for name in node.input):
        return None
    if not (_feeds_softmax(graph, node) or any(_is_softmax(graph, name) for name in node.input)):
        return None
    if slower_on:
        reason = f"{slower_on} multiplies two computed matrices faster in float"
        return Declined(node=node.name, reason=reason)
    return QuantizedNode(node=node.name, activations=(0, 1))


def _feeds_softmax(graph: Graph, node: onnx.NodeProto) -> bool:
    reader: onnx.NodeProto | None = graph.sole_consumer(node.output[0])
    while reader is not None and (reader.op_type in SCALING or moved_inputs(graph, reader)):
        reader = graph.sole_consumer(reader.output[0])
    return reader is not None and reader.op_type == "Softmax"


def _is_softmax(graph: Graph, tensor: str) -> bool:
    maker = graph.producer(tensor)
    while maker is not None and moved_inputs(graph, maker):
        maker = graph.producer(maker.input[0])
    return maker is not None and maker.op_type == "Softmax"
