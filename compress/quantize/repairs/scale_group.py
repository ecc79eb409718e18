"""Groups of tensors whose channels can be rescaled together without changing a network's outputs.

Dividing a channel by a positive factor where layers write it, and multiplying their readers'
weights by it, cancels out as long as everything in between is positively homogeneous and keeps
channels apart: ReLU, pooling, resizing, padding, and additions of tensors that are rescaled alike.
A normalization that no layer could take up writes its channels as a layer does.
"""

from dataclasses import dataclass, field

import numpy as np
import onnx

from compress.quantize.graph import Graph, attribute
from compress.quantize.pad_amounts import read_pad_amounts
from compress.quantize.placement.movement import moved_inputs
from compress.quantize.repairs.linear_group import (
    NORMS,
    divide_constants,
    find_constants,
    find_linear_groups,
)
from compress.quantize.simplify import scale_output_channels

LAYERS = frozenset({"Conv", "ConvTranspose"})
WRITERS = LAYERS | NORMS[1] | {"Mul", "Add"}
HOMOGENEOUS = frozenset(
    {"Relu", "LeakyRelu", "PRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize"}
)


@dataclass
class ScaleGroup:
    """Tensors that share one factor per channel.

    Attributes:
        tensors: all of them.
        writers: names of the layers and norms that compute them.
        readers: names of the layers that consume them, in topological order.
    """

    tensors: set[str] = field(default_factory=set)
    writers: list[str] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)


def find_scale_groups(graph: Graph) -> list[ScaleGroup]:
    """Returns the groups of a graph; tensors that others than layers read belong to none."""
    groups: list[ScaleGroup] = []
    seen: set[str] = set()
    taken = {group.tensor for group in find_linear_groups(graph)}
    for node in graph.nodes:
        is_writer = node.op_type in LAYERS or writes_by_constants(graph, node)
        if is_writer and node.output[0] not in seen:
            group = _grow(graph, node.output[0])
            if group is not None and group.readers and taken.isdisjoint(group.tensors):
                seen |= group.tensors
                groups.append(group)
    return _join_sharing(graph, groups)


def _join_sharing(graph: Graph, groups: list[ScaleGroup]) -> list[ScaleGroup]:
    """Joins the groups whose layers share weights: with one factor for both these stay the same."""
    joined: list[ScaleGroup] = []
    for group in groups:
        sharing = [other for other in joined if _share_weights(graph, group, other)]
        for other in sharing:
            joined.remove(other)
            group = ScaleGroup(
                tensors=other.tensors | group.tensors,
                writers=[*other.writers, *group.writers],
                readers=[*other.readers, *group.readers],
            )
        joined.append(group)
    return joined


def _share_weights(graph: Graph, one: ScaleGroup, other: ScaleGroup) -> bool:
    def weights(names: list[str]) -> set[str]:
        nodes = [graph.node(name) for name in names]
        return {node.input[1] for node in nodes if node.op_type in LAYERS}

    return not (
        weights(one.writers).isdisjoint(weights(other.writers))
        and weights(one.readers).isdisjoint(weights(other.readers))
    )


def _grow(graph: Graph, start: str) -> ScaleGroup | None:
    """Returns the group around a tensor; None if something in it would notice the factors."""
    group, waiting = ScaleGroup(), [start]
    while waiting:
        tensor = waiting.pop()
        if tensor in group.tensors:
            continue
        group.tensors.add(tensor)
        if tensor in graph.outputs:
            return None
        sources = _sources(graph, tensor, group)
        results = _results(graph, tensor, group)
        if sources is None or results is None:
            return None
        waiting += [*sources, *results]
    order = {node.name: position for position, node in enumerate(graph.nodes)}
    group.readers.sort(key=order.__getitem__)
    return group


def _sources(graph: Graph, tensor: str, group: ScaleGroup) -> list[str] | None:
    """Returns the tensors that a tensor's scale depends on; None if its maker fixes the scale."""
    node = graph.producer(tensor)
    if node is None:
        return None
    if node.op_type in LAYERS:
        if any(name and name not in graph.weights for name in node.input[1:3]):
            return None
        group.writers.append(node.name)
        return []
    if writes_by_constants(graph, node):
        group.writers.append(node.name)
        return []
    if is_homogeneous(graph, node):
        return [node.input[0]]
    return list(node.input) if node.op_type == "Add" else None


def _results(graph: Graph, tensor: str, group: ScaleGroup) -> list[str] | None:
    """Returns the tensors that inherit a tensor's scale; None if a reader would notice it."""
    results: list[str] = []
    for node in graph.consumers(tensor):
        if node.op_type in LAYERS and list(node.input).index(tensor) == 0:
            if any(name and name not in graph.weights for name in node.input[1:3]):
                return None
            group.readers.append(node.name)
        elif is_homogeneous(graph, node) and node.input[0] == tensor:
            results.append(node.output[0])
        elif node.op_type == "Add":
            results += [*node.input, node.output[0]]
        else:
            return None
    return results


def writes_by_constants(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether a node gives each channel of a picture a factor of its own: a norm, what is left."""
    return node.op_type in WRITERS - LAYERS and bool(list_constants(graph, node))


def list_constants(graph: Graph, node: onnx.NodeProto) -> tuple[tuple[str, int, int], ...]:
    """Returns the constants of a norm of pictures, see `find_constants`; none of other nodes."""
    shape = graph.shapes.get(node.output[0], ())
    if len(shape) != 4:
        return ()
    return find_constants(graph, node.output[0], shape[1], axis=1) or ()


def is_homogeneous(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether a positive factor per channel of a node's input comes out of it as it went in."""
    if node.op_type == "PRelu":
        return node.input[1] in graph.weights
    if node.op_type == "Resize":
        shapes = [graph.shapes.get(name) for name in (node.input[0], node.output[0])]
        channels = {shape[1] for shape in shapes if shape and len(shape) > 1}
        return bool(attribute(node, "mode", b"nearest") != b"cubic") and len(channels) < 2
    if node.op_type == "Pad":
        return _pads_places(graph, node)
    return node.op_type in HOMOGENEOUS and len(node.output) == 1


def _pads_places(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether a Pad leaves the channels of a picture alone, and adds none but its values or 0."""
    pads = None if any(node.input[3:]) else read_pad_amounts(graph, node)
    if pads is None or len(graph.shapes[node.input[0]]) < 3:
        return False
    is_scaled = attribute(node, "mode", b"constant") != b"constant" or moved_inputs(graph, node)
    return bool(is_scaled) and pads.keys().isdisjoint({0, 1})


def rescale(graph: Graph, group: ScaleGroup, factors: np.ndarray) -> None:
    """Divides the group's tensors by `factors` [C] and multiplies the readers' weights by them."""
    for name in group.writers:
        divide_outputs(graph, name, factors)
    for name in group.readers:
        layer = graph.node(name)
        outputs = output_channels(layer, graph.weights[layer.input[1]])
        weight, bias = _weight_and_bias(graph, layer, outputs)
        _store(graph, layer, scale_input_channels(layer, weight, factors), bias)


def divide_outputs(graph: Graph, name: str, factors: np.ndarray) -> None:
    """Divides what a layer or a norm writes by `factors` [C], in its weight and its bias."""
    layer = graph.node(name)
    if layer.op_type not in LAYERS:
        divide_constants(graph, list_constants(graph, layer), factors)
        return
    weight, bias = _weight_and_bias(graph, layer, len(factors))
    scaled = scale_output_channels(layer, weight, 1 / factors)
    if scaled is None:
        raise ValueError(f"layer {name} does not write {len(factors)} channels")
    _store(graph, layer, scaled, bias / factors)


def output_channels(layer: onnx.NodeProto, weight: np.ndarray) -> int:
    """Returns how many channels a layer writes."""
    if layer.op_type == "ConvTranspose":
        return int(weight.shape[1] * attribute(layer, "group", 1))
    return int(weight.shape[0])


def filters(layer: onnx.NodeProto, weight: np.ndarray) -> np.ndarray:
    """Returns a layer's weight as [out, in, ...], a matrix the other way round; or back again."""
    return weight.T if layer.op_type == "MatMul" else weight


def scale_input_channels(
    layer: onnx.NodeProto, weight: np.ndarray, factors: np.ndarray
) -> np.ndarray:
    """Multiplies a layer's weight, see `filters`, by one factor per input channel."""
    if layer.op_type == "ConvTranspose":
        return np.asarray(weight * factors.reshape(-1, *(1,) * (weight.ndim - 1)))
    groups = attribute(layer, "group", 1)
    outputs, inputs = weight.shape[:2]
    grouped = weight.reshape(groups, outputs // groups, inputs, -1)
    return np.asarray((grouped * factors.reshape(groups, 1, inputs, 1)).reshape(weight.shape))


def _weight_and_bias(
    graph: Graph, layer: onnx.NodeProto, outputs: int
) -> tuple[np.ndarray, np.ndarray]:
    has_bias = len(layer.input) > 2 and bool(layer.input[2])
    bias = graph.weights[layer.input[2]] if has_bias else np.zeros(outputs)
    return graph.weights[layer.input[1]].astype(np.float64), bias.astype(np.float64)


def _store(graph: Graph, layer: onnx.NodeProto, weight: np.ndarray, bias: np.ndarray) -> None:
    graph.replace_weights(layer, weight.astype(np.float32), bias.astype(np.float32))
