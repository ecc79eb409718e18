"""Biases behind integer products, written such that onnxruntime opens the file as it is.

From opset 21 on, onnxruntime makes one node of a MatMul and the Add of a bias with one axis, and
the quantizer that it writes for signed integers has the zero point of unsigned ones: it refuses its
own network (see `artifacts.bias_quantization.PRODUCT_FUSION`). A bias with as many axes as the
product is added all the same, and left alone.
"""

from collections.abc import Iterator

import numpy as np
import onnx

from compress.quantize.graph import Graph

FIRST_OPSET = 21
_MATRIX = 2
"""Products with as few axes are joined without a quantizer."""


def widen_product_biases(graph: Graph) -> None:
    """Gives biases behind MatMuls of signed integers an axis of 1 for each that they lack."""
    if graph.opset < FIRST_OPSET:
        return
    for node in graph.nodes:
        if node.op_type == "MatMul" and _reads_signed(graph, node):
            rank = _rank(graph, node)
            for add, position in _vector_sums(graph, node.output[0]) if rank > _MATRIX else ():
                bias = graph.weights[add.input[position]]
                name = graph.unused_name(f"{add.input[position]}_wide")
                graph.weights[name] = bias.reshape((1,) * (rank - 1) + bias.shape)
                add.input[position] = name
    graph.index()


def _reads_signed(graph: Graph, node: onnx.NodeProto) -> bool:
    maker = graph.producer(node.input[0])
    if maker is None or maker.op_type != "DequantizeLinear":
        return False
    return graph.weights[maker.input[2]].dtype != np.uint8


def _rank(graph: Graph, node: onnx.NodeProto) -> int:
    """Returns how many axes a product has; 0 where that is not known."""
    known = graph.shapes.get(node.output[0])
    return len(known) if known is not None else 0


def _vector_sums(graph: Graph, tensor: str) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yields the Adds of a tensor and a constant with one axis, and where the constant stands."""
    for reader in graph.consumers(tensor):
        if reader.op_type == "Add":
            other = 1 - list(reader.input).index(tensor)
            value = graph.weights.get(reader.input[other])
            if value is not None and value.ndim == 1:
                yield reader, other
