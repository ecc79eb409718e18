"""Layers that compute a single vector, whose input OpenVINO reads faster in float.

The layers of squeeze-and-excite and those behind a mean over the picture compute so little that to
round their inputs takes about as long as it saves, and costs decibels. Their weights are integers
all the same: the file stays small.
"""

from collections.abc import Sequence
from dataclasses import replace

import onnx

from compress.quantize.graph import Graph
from compress.quantize.placement.contract import QuantizedNode
from compress.quantize.placement.layers import LAYERS

MOST_WEIGHTS = 1 << 16
"""Larger ones take as long as it takes to read their weights, which integers make shorter."""


def read_vectors_in_float(graph: Graph, quantized: Sequence[QuantizedNode]) -> list[QuantizedNode]:
    """Returns the nodes, those that compute one vector by few weights without activations.

    All as they are where there is nothing but vectors: they are the network's work then.
    """
    vectors = {item.node for item in quantized if _is_small_vector(graph, graph.node(item.node))}
    if all(item.node in vectors for item in quantized if item.weight is not None):
        return list(quantized)
    return [replace(item, activations=()) if item.node in vectors else item for item in quantized]


def _is_small_vector(graph: Graph, node: onnx.NodeProto) -> bool:
    weight = graph.weights.get(node.input[1]) if node.op_type in LAYERS else None
    shape = graph.shapes.get(node.output[0])
    if weight is None or shape is None or weight.size > MOST_WEIGHTS:
        return False
    is_picture = node.op_type in ("Conv", "ConvTranspose")
    others = (shape[0], *shape[2:]) if is_picture else shape[:-1]
    return all(size == 1 for size in others)
