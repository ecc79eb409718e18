"""How much work a layer does, from shapes: a guide for which layers to try, not a measurement."""

import math

import onnx

from compress.quantize.graph import Graph


def count_macs(graph: Graph, node: onnx.NodeProto) -> int:
    """Returns the multiply-accumulates of a layer; 0 where shapes are unknown or it has no weight.

    Conv: outputs x weights of one output channel; ConvTranspose: inputs x weights of one input
    channel; Gemm and MatMul: outputs x length of the sum.
    """
    weight = graph.weights.get(node.input[1]) if len(node.input) > 1 else None
    source, result = graph.shapes.get(node.input[0]), graph.shapes.get(node.output[0])
    if weight is None or source is None or result is None:
        return 0
    if node.op_type == "Conv":
        return math.prod(result) * math.prod(weight.shape[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(source) * math.prod(weight.shape[1:])
    if node.op_type in ("Gemm", "MatMul"):
        return math.prod(result) * source[-1]
    return 0


def count_values(graph: Graph, node: onnx.NodeProto) -> int:
    """Returns how many activations a node reads and writes, where shapes are known."""
    tensors = [*node.input, *node.output]
    return sum(math.prod(graph.shapes[name]) for name in tensors if name in graph.shapes)


def arithmetic_intensity(graph: Graph, node: onnx.NodeProto) -> float:
    """Returns multiply-accumulates per activation read or written."""
    return count_macs(graph, node) / max(count_values(graph, node), 1)
