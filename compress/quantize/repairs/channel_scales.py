"""Gives the channels that layers read similar ranges behind an activation.

Equalization moves factors into the layer that writes a tensor, which HardSwish, SiLU or a Clip in
between does not allow. Such an activation gets a product with one constant per channel instead,
x_c / f_c, and the layers take f_c up: a depthwise one without loss, since its weights have a scale
for every channel, others as far as their weights' grids allow. Together with the quantizer behind
it that is a scale per channel, written so that every runtime can read it. The product costs time
where a runtime does not fuse it, so it is only put where it takes away most of the layers' error.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from compress.quantize.channel_survey import AXES, ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import Placement
from compress.quantize.placement.movement import MOVING
from compress.quantize.placement.reductions import find_unscalable
from compress.quantize.qparams import WeightGrids
from compress.quantize.repairs.equalization import (
    Reach,
    choose_factors,
    choose_reach,
    is_depthwise,
)
from compress.quantize.repairs.linear_group import find_linear_groups
from compress.quantize.repairs.scale_group import (
    HOMOGENEOUS,
    LAYERS,
    filters,
    is_homogeneous,
    scale_input_channels,
)

MOST_ERROR_LEFT = 0.5
"""Share of the layers' error that a product leaves, where it is worth its time."""
MOST_LEFT_FUSED, MOST_LEFT_APART = 0.65, 0.35
"""The same before layers other than depthwise ones, by whether the target fuses products."""
SUFFIX = "framefit_channel_scale"
READERS = LAYERS | {"Gemm", "MatMul"}
CARRIERS = frozenset({"AveragePool", "GlobalAveragePool", "MaxPool", "Pad", "Resize"})
"""What passes a factor per channel on."""


@dataclass(frozen=True, kw_only=True)
class ScaledRead:
    """A tensor that only layers with constant weights read, some behind pooling or resizing.

    Attributes:
        tensor: its name.
        axis: of its channels: 1 in pictures, the last (as -1, too) in rows.
        readers: names of the layers.
    """

    tensor: str
    axis: int
    readers: tuple[str, ...]


def scale_channels(
    graph: Graph,
    survey: ChannelSurvey,
    placement: Placement,
    quantized: Collection[str],
    weight_grids: WeightGrids,
) -> list[str]:
    """Inserts products in place where they take away most of the error of the layers behind them.

    See `ScaleRepair` for arguments and result.
    """
    found = _find_reads(graph, frozenset(quantized))
    if not found:
        return []
    lines = []
    for read in found:
        is_depthwise_only = all(is_depthwise(graph, name) for name in read.readers)
        reach = choose_reach(len(survey.samples), is_depthwise_only)
        most_left = most_error_left(placement, is_depthwise_only)
        lines += insert_where_it_pays(
            graph, read, survey, placement, weight_grids, reach, most_left
        )
    return lines


def most_error_left(placement: Placement, is_depthwise_only: bool) -> float:
    """Returns the share of the layers' error that a product may leave and be worth its time."""
    if is_depthwise_only:
        return MOST_ERROR_LEFT
    return MOST_LEFT_FUSED if placement.fuses_products else MOST_LEFT_APART


def insert_where_it_pays(
    graph: Graph,
    read: ScaledRead,
    survey: ChannelSurvey,
    placement: Placement,
    weight_grids: WeightGrids,
    reach: Reach,
    most_left: float = MOST_ERROR_LEFT,
) -> list[str]:
    """Inserts a product in place where it takes away most of the error of the layers behind it.

    Args:
        graph: is changed.
        read: the tensor, and the layers that are to read the product.
        survey: what these layers read on calibration inputs.
        placement: tells the integers of activations.
        weight_grids: the integers of weights.
        reach: the factors that are tried.
        most_left: share of the error that may be left.

    Returns:
        a line about the product, if there is one.
    """
    layers = [graph.node(name) for name in read.readers]
    seen = survey.look(graph, {layer.input[0]: AXES[layer.op_type] for layer in layers})
    factors = choose_factors(graph, read.readers, seen, placement, weight_grids, reach, most_left)
    if factors is None:
        return []
    insert_scale(graph, read, factors, survey)
    return [
        f"scaled {len(factors)} channels of '{read.tensor}' before {', '.join(read.readers)}, "
        f"factors {factors.min():.3f} to 1"
    ]


def _find_reads(graph: Graph, quantized: frozenset[str]) -> list[ScaledRead]:
    """Returns the tensors that only quantized layers read, and whose writer takes no factor up.

    Not those behind which OpenVINO would misread a product.
    """
    left = {group.tensor for group in find_linear_groups(graph)} | find_unscalable(graph)
    found = []
    for node in graph.nodes:
        tensor = next(iter(node.output), "")
        if not tensor or node.op_type in READERS | MOVING | CARRIERS or tensor in left:
            continue
        readers = find_readers(graph, tensor)
        if not readers or not quantized.issuperset(readers):
            continue
        if node.op_type in HOMOGENEOUS and not all(is_depthwise(graph, name) for name in readers):
            continue
        axes = {1 if graph.node(name).op_type in LAYERS else -1 for name in readers}
        if len(axes) == 1:
            found.append(ScaledRead(tensor=tensor, axis=axes.pop(), readers=tuple(readers)))
    return found


def find_readers(graph: Graph, tensor: str) -> list[str]:
    """Returns the layers that read a tensor, directly or behind `CARRIERS`.

    None of them if anything else does, or the user. Layers whose channels come last read nothing
    behind a carrier that they would have in common: it pools them.
    """
    readers: list[str] = []
    waiting = [tensor]
    while waiting:
        name = waiting.pop()
        known = READERS if name == tensor else LAYERS
        consumers = graph.consumers(name)
        if name in graph.outputs or not consumers:
            return []
        for node in consumers:
            if node.input[0] != name:
                return []
            if node.op_type in known and node.input[1] in graph.weights:
                readers.append(node.name)
            elif node.op_type in CARRIERS and is_homogeneous(graph, node):
                waiting.append(node.output[0])
            else:
                return []
    order = {node.name: place for place, node in enumerate(graph.nodes)}
    return sorted(readers, key=order.__getitem__)


def insert_scale(
    graph: Graph, read: ScaledRead, factors: NDArray[np.float64], survey: ChannelSurvey
) -> None:
    """Lets layers read a tensor divided by `factors` [C], and multiplies their weights by them.

    Args:
        graph: is changed in place.
        read: what they read; its other readers keep it.
        factors: one per channel.
        survey: is told.
    """
    readers = [
        node for node in graph.consumers(read.tensor) if _leads_to(graph, node, read.readers)
    ]
    layer = graph.node(read.readers[0])
    axis, rank = AXES[layer.op_type], graph.weights[layer.input[1]].ndim
    survey.divide(_list_carried(graph, readers), factors, axis)
    result = put_product(graph, read.tensor, readers, factors, SUFFIX, axis=read.axis, rank=rank)
    survey.derive(result, read.tensor, factors, axis)
    for name in read.readers:
        take_up(graph, graph.node(name), factors)
    graph.index()
    graph.drop_unused_weights()


def put_product(
    graph: Graph,
    tensor: str,
    readers: Sequence[onnx.NodeProto],
    factors: NDArray[np.float64],
    suffix: str,
    *,
    axis: int = 1,
    rank: int = 0,
) -> str:
    """Lets nodes read a tensor's product with 1 / `factors`, of as many axes as the tensor has.

    With fewer, OpenVINO would change the layout (`artifacts/openvino_ranks.py`).

    Args:
        graph: is changed in place.
        tensor: what is divided.
        readers: the nodes; others keep the tensor.
        factors: [C], one per channel.
        suffix: of the constant's name.
        axis: of the channels, see `ScaledRead`.
        rank: of the tensor, where its shape is unknown.

    Returns:
        the name of the product.
    """
    result, constant = (graph.unused_name(f"{tensor}_{end}") for end in ("scaled", suffix))
    rank = len(graph.shapes[tensor]) if tensor in graph.shapes else rank
    shape = [-1] if axis == -1 else [-1 if own == axis else 1 for own in range(rank)]
    graph.weights[constant] = (1 / factors).astype(np.float32).reshape(shape)
    for node in readers:
        for position, name in enumerate(node.input):
            if name == tensor:
                node.input[position] = result
    makers = [index for index, node in enumerate(graph.nodes) if tensor in node.output]
    product = helper.make_node("Mul", [tensor, constant], [result], result)
    graph.insert(makers[0] + 1 if makers else 0, product)
    return result


def _leads_to(graph: Graph, node: onnx.NodeProto, readers: Collection[str]) -> bool:
    """Whether a node is one of the layers, or carries to nothing else."""
    carried = find_readers(graph, node.output[0]) if node.op_type in CARRIERS else [node.name]
    return bool(carried) and set(carried) <= set(readers)


def _list_carried(graph: Graph, readers: Sequence[onnx.NodeProto]) -> list[str]:
    """Returns what `CARRIERS` among the readers of a tensor, and behind these, write."""
    carried = [node.output[0] for node in readers if node.op_type in CARRIERS]
    for name in carried:
        carried += [node.output[0] for node in graph.consumers(name) if node.op_type in CARRIERS]
    return carried


def fold_idle_scales(graph: Graph) -> None:
    """Takes out in place the products that no quantizer reads: their layers stay in float."""
    for node in graph.nodes:
        if node.op_type != "Mul" or SUFFIX not in node.input[1]:
            continue
        readers = find_readers(graph, node.output[0])
        if readers:
            divisors = graph.weights[node.input[1]].reshape(-1)
            for name in readers:
                take_up(graph, graph.node(name), divisors)
            for item in graph.consumers(node.output[0]):
                item.input[0] = node.input[0]
            graph.shapes.pop(node.output[0], None)
            graph.remove([node.name])
    graph.drop_unused_weights()


def take_up(graph: Graph, layer: onnx.NodeProto, factors: NDArray[np.floating]) -> None:
    """Multiplies a layer's weights by one factor per input channel."""
    weight = filters(layer, graph.weights[layer.input[1]])
    weight = filters(layer, scale_input_channels(layer, weight, factors))
    stored = graph.unused_name(f"{layer.name}_scaled_weight")
    graph.weights[stored] = weight.astype(np.float32)
    layer.input[1] = stored
