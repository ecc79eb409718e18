"""Layers that compute a single vector: squeeze-and-excite, what reads the mean of a picture.

They compute so little that to round their inputs takes about as long as it saves, and costs
decibels. OpenVINO reads integer weights all the same, and the file stays small. TensorRT needs a
kernel more for most layers that round their input or hold integer weights, and none for a float
one (docs/placement.md).
"""

from collections.abc import Sequence
from dataclasses import replace

import onnx

from compress.quantize.graph import Graph
from compress.quantize.placement.contract import Declined, QuantizedNode, leave_in_float
from compress.quantize.placement.layers import LAYERS

MOST_WEIGHTS = 1 << 16
"""Larger ones take as long as it takes to read their weights, which integers make shorter."""
REASON = "it computes one vector by few weights, for which TensorRT needs no more kernels in float"


def read_vectors_in_float(graph: Graph, quantized: Sequence[QuantizedNode]) -> list[QuantizedNode]:
    """Returns the nodes, those that compute one vector by few weights without activations."""
    vectors = _find_small_vectors(graph, quantized)
    return [replace(item, activations=()) if item.node in vectors else item for item in quantized]


def keep_vectors_in_float(
    graph: Graph, quantized: Sequence[QuantizedNode]
) -> tuple[list[QuantizedNode], list[Declined]]:
    """Returns the nodes without those that compute one vector by few weights, and these."""
    return leave_in_float(quantized, _find_small_vectors(graph, quantized), REASON)


def _find_small_vectors(graph: Graph, quantized: Sequence[QuantizedNode]) -> set[str]:
    """Returns the names of these layers; none where all are: they are the network's work then."""
    layers = [item for item in quantized if item.weight is not None]
    vectors = {item.node for item in layers if _is_small_vector(graph, graph.node(item.node))}
    return vectors if len(vectors) < len(layers) else set()


def _is_small_vector(graph: Graph, node: onnx.NodeProto) -> bool:
    weight = graph.weights.get(node.input[1]) if node.op_type in LAYERS else None
    shape = graph.shapes.get(node.output[0])
    if weight is None or shape is None or weight.size > MOST_WEIGHTS:
        return False
    is_picture = node.op_type in ("Conv", "ConvTranspose")
    others = (shape[0], *shape[2:]) if is_picture else shape[:-1]
    return all(size == 1 for size in others)
