"""Gives channels similar ranges where a Concat, a Split or an Add is between activation and layer.

What a C2f block of a YOLO, a pyramid or a DenseNet joins has one scale for all, and the loudest
channel of all decides it. As `channel_scales` does for a single tensor, each activation that writes
into the joined tensors gets a product with a constant per channel, and the layers that read them
take the factors up; what an Add sums has the same ones (`channel_variables`). A layer that writes
them, with nothing but a ReLU or the like between, needs no product: its weights are divided.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compress.quantize.channel_survey import ChannelSurvey, SeenChannels
from compress.quantize.graph import Graph
from compress.quantize.placement import Placement
from compress.quantize.qparams import WeightGrids
from compress.quantize.repairs.channel_scales import most_error_left, put_product, take_up
from compress.quantize.repairs.channel_variables import ChannelVariables, Component
from compress.quantize.repairs.equalization import (
    LEAST_GAIN,
    Reach,
    choose_reach,
    is_depthwise,
    measure_error,
)
from compress.quantize.repairs.scale_group import divide_outputs
from compress.quantize.side_by_side import map_ahead

SUFFIX = "framefit_joined_scale"
Factors = NDArray[np.float64]


def scale_joined(
    graph: Graph,
    survey: ChannelSurvey,
    placement: Placement,
    quantized: Collection[str],
    weight_grids: WeightGrids,
) -> list[str]:
    """Inserts products in place where they take away enough of the error of the layers behind.

    See `ScaleRepair` for arguments and result.
    """
    channels = ChannelVariables.follow(graph)
    groups = [item for item in channels.components() if _is_joined(channels, item)]
    read = {channels.readers[name]: 1 for group in groups for name in group.readers}
    if not read:
        return []
    seen = survey.look(graph, read)
    factors = np.ones(channels.count)
    lines = []
    for group in groups:
        readers = [name for name in group.readers if name in quantized]
        is_depthwise_only = all(is_depthwise(graph, name) for name in readers)
        reach = choose_reach(len(survey.samples), is_depthwise_only)
        is_free = not group.makers
        most_left = LEAST_GAIN if is_free else most_error_left(placement, is_depthwise_only)
        judge = JoinedError(graph, channels, readers, seen, placement, weight_grids)
        chosen = choose_joined(judge, group, reach, most_left)
        if chosen is not None:
            factors *= chosen
            lines.append(
                f"scaled {len(group.variables)} channels behind "
                f"{', '.join([*group.makers, *group.writers])} before {', '.join(readers)}, "
                f"factors {chosen.min():.3f} to 1"
            )
    if lines:
        insert_factors(graph, channels, factors, survey)
    return lines


def _is_joined(channels: ChannelVariables, group: Component) -> bool:
    """Whether other repairs leave a group: sums of layers alone belong to `equalize`."""
    joining = channels.joins | channels.sums if group.makers else channels.joins
    return bool(group.variables & joining)


@dataclass(frozen=True)
class JoinedError:
    """What factors leave of the error of layers that read joined tensors.

    Attributes:
        graph: the float network, which stays.
        channels: its variables.
        readers: names of the layers.
        seen: what they read.
        placement: tells the integers of activations.
        weight_grids: the integers of weights.
    """

    graph: Graph
    channels: ChannelVariables
    readers: Sequence[str]
    seen: Mapping[str, SeenChannels]
    placement: Placement
    weight_grids: WeightGrids

    @property
    def tensors(self) -> list[str]:
        """What the layers read."""
        return sorted({self.channels.readers[name] for name in self.readers})

    def measure(self, factors: Factors) -> float:
        """Returns the error that a factor of each variable leaves, see `measure_error`."""
        total = 0.0
        for name in self.readers:
            own = factors[self.channels.of[self.channels.readers[name]]]
            total += measure_error(
                self.graph, [name], self.seen, self.placement, self.weight_grids, own
            )
        return total

    def reduce(self, find: Callable[[SeenChannels], NDArray[np.floating]]) -> Factors:
        """Returns the largest of what is found in the channels of each variable, 0 of others."""
        found = np.zeros(self.channels.count)
        for tensor in self.tensors:
            np.maximum.at(found, self.channels.of[tensor], find(self.seen[tensor]))
        return found


def choose_joined(
    judge: JoinedError, group: Component, reach: Reach, most_left: float
) -> Factors | None:
    """Returns the factor of each variable, 1 outside the group; None if too little is won."""
    peaks = judge.reduce(lambda seen: seen.peaks)
    loudest = float(peaks.max())
    if not np.isfinite(loudest) or loudest == 0:
        return None
    is_member = np.zeros(len(peaks), bool)
    is_member[list(group.variables)] = True
    relative = np.where(is_member, np.clip(peaks / loudest, reach.smallest_factor, 1.0), 1.0)
    errors = list(map_ahead(lambda exponent: judge.measure(relative**exponent), reach.exponents))
    best = int(np.argmin(errors))
    if best == 0 or errors[best] > errors[0] * most_left:
        return None
    return np.asarray(relative ** reach.exponents[best])


def insert_factors(
    graph: Graph, channels: ChannelVariables, factors: Factors, survey: ChannelSurvey
) -> None:
    """Puts products behind activations in place, and lets the layers take the factors up.

    Args:
        graph: is changed.
        channels: its variables.
        factors: one per variable.
        survey: is told.
    """
    _scale_layers(graph, channels, factors)
    for tensor, variables in channels.of.items():
        own = factors[variables]
        if (own != 1).any():
            if tensor in channels.makers:
                result = put_product(graph, tensor, graph.consumers(tensor), own, SUFFIX)
                survey.derive(result, tensor, own)
            else:
                survey.divide({tensor}, own)
    graph.index()
    graph.drop_unused_weights()


def _scale_layers(graph: Graph, channels: ChannelVariables, factors: Factors) -> None:
    """Multiplies what layers read by the factor of each variable, and divides what they write."""
    for name, tensor in channels.readers.items():
        own = factors[channels.of[tensor]]
        if (own != 1).any():
            take_up(graph, graph.node(name), own)
    for name, tensor in channels.writers.items():
        own = factors[channels.of[tensor]]
        if (own != 1).any():
            divide_outputs(graph, name, own)


def fold_idle_joined(graph: Graph) -> None:
    """Takes out in place the products behind which no quantizer is: their layers stay in float."""
    products = [node for node in graph.nodes if node.op_type == "Mul" and SUFFIX in node.input[1]]
    if not products:
        return
    channels = ChannelVariables.follow(graph)
    products = [node for node in products if channels.of[node.output[0]].size]
    divisors = np.ones(channels.count)
    for node in products:
        divisors[channels.of[node.output[0]]] = graph.weights[node.input[1]].reshape(-1)
    held = set(channels.pinned)
    idle = products
    while True:
        kept = [node for node in idle if held & set(channels.of[node.output[0]].tolist())]
        if not kept:
            break
        idle = [node for node in idle if node not in kept]
        for node in kept:
            held |= set(channels.of[node.output[0]].tolist())
    divisors[list(held)] = 1.0
    _scale_layers(graph, channels, divisors)
    for node in idle:
        graph.rewire(node.output[0], node.input[0])
        graph.shapes.pop(node.output[0], None)
    graph.remove([node.name for node in idle])
    graph.drop_unused_weights()
