"""How much work a layer does, from shapes: a guide for which layers to try, not a measurement."""

import math

import onnx

from compress.quantize.graph import Graph, attribute


def count_macs(graph: Graph, node: onnx.NodeProto) -> int | None:
    """Returns the multiply-accumulates of a layer by its constant weight.

    Conv: outputs x weights of one output channel; ConvTranspose: inputs x weights of one input
    channel; Gemm and MatMul: outputs x length of the sum.

    Returns:
        None for other nodes, for weights that are computed or of one axis, and where the shape of
        the result is unknown, or of what a ConvTranspose reads.
    """
    weight = graph.weights.get(node.input[1]) if len(node.input) > 1 else None
    if weight is None or weight.ndim < 2:
        return None
    source, result = graph.shapes.get(node.input[0]), graph.shapes.get(node.output[0])
    if result is None:
        return None
    if node.op_type == "Conv":
        return math.prod(result) * math.prod(weight.shape[1:])
    if node.op_type == "ConvTranspose" and source is not None:
        return math.prod(source) * math.prod(weight.shape[1:])
    if node.op_type == "Gemm":
        return math.prod(result) * int(weight.shape[1 if attribute(node, "transB", 0) else 0])
    if node.op_type == "MatMul":
        return math.prod(result) * int(weight.shape[-2])
    return None


def count_values(graph: Graph, node: onnx.NodeProto) -> int:
    """Returns how many activations a node reads and writes, where shapes are known."""
    tensors = [*node.input, *node.output]
    return sum(math.prod(graph.shapes[name]) for name in tensors if name in graph.shapes)


def arithmetic_intensity(graph: Graph, node: onnx.NodeProto) -> float:
    """Returns multiply-accumulates per activation read or written, 0 where these are unknown."""
    return (count_macs(graph, node) or 0) / max(count_values(graph, node), 1)
