"""The constants that move a tensor: biases of layers and of normalizations, and addends."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.bias_shift import find_next_offset
from compress.quantize.graph import Graph, attribute
from compress.quantize.repairs.scale_group import output_channels

BIASED = frozenset({"Conv", "ConvTranspose", "Gemm", "BatchNormalization"})


@dataclass(frozen=True, kw_only=True)
class Bias:
    """The constant that a node adds to its result.

    Attributes:
        node: its name.
        place: of the constant among its inputs; it may have none yet.
        size: of one that it would have.
    """

    node: str
    place: int
    size: int = 1

    def add(self, graph: Graph, change: NDArray[np.float64] | float) -> None:
        """Changes what is added, by a constant that no other node reads."""
        inputs = graph.node(self.node).input
        has_one = len(inputs) > self.place and bool(inputs[self.place])
        old = graph.weights[inputs[self.place]] if has_one else np.zeros(self.size)
        name = graph.unused_name(f"{self.node}_moved")
        graph.weights[name] = (old.astype(np.float64) + change).astype(np.float32)
        inputs[self.place : self.place + 1] = [name]
        graph.index()


def find_bias(graph: Graph, tensor: str, fixed: Collection[str]) -> Bias | None:
    """Returns the constant that moves a tensor and nothing else; None if there is none.

    Args:
        graph: is not changed.
        tensor: read by one node only.
        fixed: tensors that have to stay, although they are added to what becomes `tensor`.
    """
    node = graph.producer(tensor)
    if node is None or graph.sole_consumer(tensor) is None:
        return None
    if node.op_type != "Add":
        return find_layer_bias(graph, node) if node.op_type in BIASED else None
    for place, name in enumerate(node.input):
        if name in graph.weights:
            return Bias(node=node.name, place=place)
    free = [name for name in node.input if name not in fixed]
    found = (find_bias(graph, name, fixed) for name in free)
    return next((bias for bias in found if bias is not None), None)


def find_layer_bias(graph: Graph, layer: onnx.NodeProto) -> Bias | None:
    """Returns the constant that is added to a layer's products; None if it cannot have one.

    That of a MatMul belongs to the Add behind it.
    """
    weight = graph.weights.get(layer.input[1])
    if weight is None:
        return None
    if layer.op_type == "MatMul":
        name = find_next_offset(graph, layer, weight.shape[-1])
        if name is None:
            return None
        (add,) = graph.consumers(layer.output[0])
        return Bias(node=add.name, place=list(add.input).index(name))
    if layer.op_type == "Gemm" and not attribute(layer, "transB", 0):
        return None
    has_one = len(layer.input) > 2 and bool(layer.input[2])
    bias = graph.weights.get(layer.input[2]) if has_one else np.zeros(1)
    if bias is None or bias.ndim != 1:
        return None
    return Bias(node=layer.name, place=2, size=output_channels(layer, weight))
