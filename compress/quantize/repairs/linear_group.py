"""Tensors whose channels can be rescaled between their writer and the products that read them.

Dividing channel c by a factor where it is written, and multiplying row c of each reader's matrix by
it, cancels out. Readers are products along the last axis (MatMul, Gemm), or 1x1 Convs along axis 1.
Writers are a normalization, a Mul or Add of one constant per channel (what normalizations are
exported as), and for the last axis a product with constant weights; with a ReLU behind or not.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.graph import Array, Graph, attribute

Real = NDArray[np.float64]
NORMS = {
    -1: frozenset({"LayerNormalization"}),
    1: frozenset({"BatchNormalization", "InstanceNormalization"}),
}
"""By the axis of their channels."""


@dataclass(frozen=True, kw_only=True)
class LinearGroup:
    """A tensor with the constants that its factors go into.

    Attributes:
        tensor: its name.
        channels: how many it has.
        axis: of its channels: -1, or 1 in pictures.
        divided: (node, position of the input, axis of the channels) of each constant on the
            writing side.
        readers: names of the products that read it, in topological order.
    """

    tensor: str
    channels: int
    axis: int
    divided: tuple[tuple[str, int, int], ...]
    readers: tuple[str, ...]


def find_linear_groups(graph: Graph) -> list[LinearGroup]:
    """Returns the groups of a graph, in topological order."""
    groups = []
    for node in graph.nodes:
        for tensor in node.output[:1]:
            group = _group_at(graph, tensor)
            if group is not None:
                groups.append(group)
    return groups


def _group_at(graph: Graph, tensor: str) -> LinearGroup | None:
    readers = graph.consumers(tensor)
    if not readers or tensor in graph.outputs:
        return None
    if not all(_is_product_of(graph, reader, tensor) for reader in readers):
        return None
    kinds = {(_input_channels(graph, reader), channel_axis(reader)) for reader in readers}
    if len(kinds) != 1:
        return None
    size, axis = kinds.pop()
    divided = find_constants(graph, tensor, size, axis)
    if divided is None:
        return None
    names = tuple(reader.name for reader in readers)
    return LinearGroup(tensor=tensor, channels=size, axis=axis, divided=divided, readers=names)


def _is_product_of(graph: Graph, node: onnx.NodeProto, tensor: str) -> bool:
    if node.op_type not in ("MatMul", "Gemm", "Conv") or list(node.input).count(tensor) != 1:
        return False
    weight = graph.weights.get(node.input[1])
    if node.op_type == "Conv":
        is_pointwise = weight is not None and weight.ndim == 4 and weight.shape[2:] == (1, 1)
        is_whole = attribute(node, "group", 1) == 1 and not any(attribute(node, "pads", ()))
        return is_pointwise and is_whole
    if node.input[0] != tensor or weight is None or weight.ndim != 2:
        return False
    is_plain = attribute(node, "transB", 0) and not attribute(node, "transA", 0)
    return node.op_type == "MatMul" or bool(is_plain)


def _input_channels(graph: Graph, product: onnx.NodeProto) -> int:
    shape = graph.weights[product.input[1]].shape
    return int(shape[0] if product.op_type == "MatMul" else shape[1])


def find_constants(
    graph: Graph, tensor: str, channels: int, axis: int
) -> tuple[tuple[str, int, int], ...] | None:
    """Returns the constants to divide so that a tensor is divided; None if that cannot be.

    Args:
        graph: the network.
        tensor: the name.
        channels: how many it has.
        axis: of its channels: -1, or 1 in pictures.

    Returns:
        (node, position of the input, axis of the channels) of each constant.
    """
    node = graph.producer(tensor)
    if node is None:
        return None
    if node.op_type in NORMS[axis]:
        return _norm_constants(graph, node, channels)
    if node.op_type == "Relu" and graph.sole_consumer(node.input[0]) is not None:
        return find_constants(graph, node.input[0], channels, axis)
    if node.op_type in ("Mul", "Add"):
        return _affine_constants(graph, node, channels, axis)
    is_product = node.op_type in ("MatMul", "Gemm") and axis == -1
    if is_product and _is_product_of(graph, node, node.input[0]):
        parts = [(node.name, 1, 1 if node.op_type == "MatMul" else 0)]
        if len(node.input) > 2 and node.input[2]:
            bias = graph.weights.get(node.input[2])
            if bias is None or bias.shape != (channels,):
                return None
            parts.append((node.name, 2, 0))
        return tuple(parts)
    return None


def _norm_constants(
    graph: Graph, node: onnx.NodeProto, channels: int
) -> tuple[tuple[str, int, int], ...] | None:
    positions = [place for place in (1, 2) if place < len(node.input) and node.input[place]]
    values = [graph.weights.get(node.input[place]) for place in positions]
    if len(node.output) > 1 or any(item is None or item.shape != (channels,) for item in values):
        return None
    return tuple((node.name, place, 0) for place in positions)


def _affine_constants(
    graph: Graph, node: onnx.NodeProto, channels: int, axis: int
) -> tuple[tuple[str, int, int], ...] | None:
    """A Mul's constant takes the factors; an Add's too, and what it is added to as well."""
    place = 1 if node.input[1] in graph.weights else 0
    constant, other = graph.weights.get(node.input[place]), node.input[1 - place]
    behind = (1,) * (0 if axis == -1 else 2)
    if constant is None or constant.shape not in ((channels, *behind), (1, channels, *behind)):
        return None
    own = (node.name, place, constant.ndim - 1 - len(behind))
    if node.op_type == "Mul":
        return (own,)
    before = find_constants(graph, other, channels, axis)
    if before is None or graph.sole_consumer(other) is None:
        return None
    return (*before, own)


def rescale_linear(graph: Graph, group: LinearGroup, factors: Real) -> None:
    """Divides the group's tensor by `factors` [C] and multiplies the readers' weights by them."""
    divide_constants(graph, group.divided, factors)
    for name in group.readers:
        reader = graph.node(name)
        _replace(graph, reader, 1, factors, input_axis(reader))
    graph.index()
    graph.drop_unused_weights()


def divide_constants(
    graph: Graph, constants: Iterable[tuple[str, int, int]], factors: Real
) -> None:
    """Divides constants, see `find_constants`, by `factors` [C]."""
    for name, place, axis in constants:
        _replace(graph, graph.node(name), place, 1 / factors, axis)


def list_divided(graph: Graph, group: LinearGroup) -> set[str]:
    """Returns what `rescale_linear` divides: the group's tensor, and those on the way to it."""
    return {group.tensor, *(graph.node(name).output[0] for name, _, _ in group.divided)}


def input_axis(product: onnx.NodeProto) -> int:
    """Returns the axis of a product's weight that its input's channels meet."""
    return 0 if product.op_type == "MatMul" else 1


def channel_axis(product: onnx.NodeProto) -> int:
    """Returns the axis of a product's input that holds the channels."""
    return 1 if product.op_type == "Conv" else -1


def multiply_axis(value: Array, factors: Real, axis: int) -> Real:
    """Returns a constant times one factor per index of an axis."""
    shape = [1] * value.ndim
    shape[axis] = -1
    return np.asarray(value.astype(np.float64) * factors.reshape(shape))


def _replace(graph: Graph, node: onnx.NodeProto, place: int, factors: Real, axis: int) -> None:
    """Gives a node a constant of its own, so that shared ones stay as they are."""
    value = multiply_axis(graph.weights[node.input[place]], factors, axis)
    name = graph.unused_name(f"{node.name}_input_{place}_rescaled")
    graph.weights[name] = value.astype(np.float32)
    node.input[place] = name
