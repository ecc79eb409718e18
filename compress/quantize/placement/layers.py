"""Rules that every placement shares: which layers can compute in integers."""

import numpy as np
import onnx

from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.contract import Declined, QuantizedNode

LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def quantize_layer(graph: Graph, node: onnx.NodeProto) -> QuantizedNode | Declined:
    """Quantizes the input and the weight of a Conv, ConvTranspose, Gemm or MatMul."""
    data, weight_name = node.input[0], node.input[1]
    if data in graph.weights:
        return Declined(node=node.name, reason=f"its input '{data}' is a constant")
    if weight_name not in graph.weights:
        return Declined(
            node=node.name, reason=f"its weight '{weight_name}' is computed, not a constant"
        )
    weight = graph.weights[weight_name]
    if weight.dtype != np.float32:
        return Declined(node=node.name, reason=f"its weight is {weight.dtype}, not float32")
    if not weight.any():
        return Declined(node=node.name, reason="its weight is all zeros")
    if node.op_type == "MatMul":
        if weight.ndim != 2:
            return Declined(node=node.name, reason=f"its weight has {weight.ndim} axes, not 2")
        rank = len(graph.shapes.get(data, (0, 0)))
        return QuantizedNode(
            node=node.name, activations=(0,), weight=1, weight_axis=1, output_axis=rank - 1
        )
    if node.op_type == "Gemm" and (
        attribute(node, "transA", 0) or not attribute(node, "transB", 0)
    ):
        return Declined(node=node.name, reason="its matrices are not [N, in] x [out, in]")
    if len(node.input) > 2 and node.input[2] and node.input[2] not in graph.weights:
        return Declined(node=node.name, reason=f"its bias '{node.input[2]}' is computed")
    axis = 1 if node.op_type == "ConvTranspose" else 0
    return QuantizedNode(node=node.name, activations=(0,), weight=1, weight_axis=axis)


def quantize_residual_add(
    graph: Graph, node: onnx.NodeProto, layers: set[str]
) -> QuantizedNode | Declined | None:
    """Quantizes one branch of an Add whose other branch comes from a quantized layer.

    The layer that is computed last adds the other branch in its own kernel (TensorRT's and
    oneDNN's fused sum), so its output stays as it is, and the other branch arrives as integers.
    """
    if any(name in graph.weights for name in node.input):
        return None
    shapes = [graph.shapes.get(name) for name in node.input]
    fused = [
        position for position in (0, 1) if _is_fusable(graph, node, node.input[position], layers)
    ]
    if not fused:
        return None
    if shapes[0] is None or shapes[0] != shapes[1]:
        return Declined(node=node.name, reason=f"it broadcasts {shapes[0]} and {shapes[1]}")
    order = {other.name: position for position, other in enumerate(graph.nodes)}
    last = max(fused, key=lambda position: order[_source(graph, node.input[position])])
    return QuantizedNode(node=node.name, activations=(1 - last,))


def _source(graph: Graph, tensor: str) -> str:
    producer = graph.producer(tensor)
    return producer.name if producer is not None else ""


def _is_fusable(graph: Graph, add: onnx.NodeProto, tensor: str, layers: set[str]) -> bool:
    return _source(graph, tensor) in layers and graph.sole_consumer(tensor) is add
