"""Channels that layers write at levels of their own get one level, before they are equalized.

Some trainings leave channels a thousand times as loud as others, and readers whose weights make up
for it: BatchNorms with tiny factors that are folded, networks that were rescaled for another number
format. `equalization` takes a channel for an eighth of the loudest at least, since one that is
quiet on the calibration pictures may be loud on others. What a layer's weights make of the power of
its inputs holds for other pictures too: with w its weights and p the mean squares of its input
channels, a channel has the level sqrt(w^2 p). So a factor goes as far as that says, and no farther
than the channel's largest value; by the exponent with the least error, and only where equalization
would leave much more of it. Equalization then begins with one level.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.channel_survey import ChannelSurvey, SeenChannels
from compress.quantize.graph import Graph, attribute
from compress.quantize.placement import Placement
from compress.quantize.qparams import INT8_WEIGHTS, WeightGrids
from compress.quantize.repairs.equalization import (
    choose_factors,
    choose_reach,
    is_depthwise,
    measure_error,
)
from compress.quantize.repairs.linear_group import NORMS
from compress.quantize.repairs.scale_group import (
    LAYERS,
    ScaleGroup,
    find_scale_groups,
    list_constants,
    output_channels,
    rescale,
)
from compress.quantize.rounding.round_layer import grouped_rows
from compress.quantize.simplify import share_equal_weights

Levels = NDArray[np.float64]
EXPONENTS = (0.5, 1.0)
MOST_LEFT = 0.5
"""Of the error that equalization leaves: less is gained by levels, and it fits the samples."""
LEAST_SPREAD = 16.0
"""Between the loudest and the quietest channel; less is left to `equalization`."""
SMALLEST_LEVEL = 1e-6
"""Relative to the loudest, that counts."""


def level_channels(
    graph: Graph,
    survey: ChannelSurvey,
    placement: Placement,
    quantized: Collection[str],
    weight_grids: WeightGrids = INT8_WEIGHTS,
) -> list[str]:
    """Rescales channels in place where equalization would leave twice the error of their readers.

    See `ScaleRepair` for arguments and result.
    """
    done = []
    for group in find_scale_groups(graph):
        readers = [name for name in group.readers if name in quantized]
        seen = _look(graph, survey, [*readers, *group.writers]) if readers else {}
        levels = _find_levels(graph, group, readers, seen) if readers else None
        if levels is None or levels.min() > 1 / LEAST_SPREAD:
            continue
        is_depthwise_only = all(is_depthwise(graph, name) for name in readers)
        reach = choose_reach(len(survey.samples), is_depthwise_only)
        measured = (graph, readers, seen, placement, weight_grids)
        equalized = choose_factors(*measured, reach)
        judge = partial(measure_error, *measured)
        factors = choose_levels(judge, levels, equalized)
        if factors is None:
            continue
        rescale(graph, group, factors)
        survey.divide(group.tensors, factors)
        done.append(
            f"levelled {len(factors)} channels into {', '.join(readers)}, "
            f"factors {factors.min():.2g} to 1"
        )
    if done:
        share_equal_weights(graph)
    return done


def choose_levels(
    judge: Callable[[Levels], float], levels: Levels, equalized: Levels | None
) -> Levels | None:
    """Returns levels to the exponent with the least error; None where too little is won by them.

    Args:
        judge: returns the error that factors leave.
        levels: relative ones.
        equalized: the factors that the next repair would choose; None where it would choose none.
    """
    known = judge(np.ones_like(levels) if equalized is None else equalized)
    errors = [judge(levels**exponent) for exponent in EXPONENTS]
    if min(errors) > MOST_LEFT * known:
        return None
    return np.asarray(levels ** EXPONENTS[int(np.argmin(errors))])


def _look(graph: Graph, survey: ChannelSurvey, names: Sequence[str]) -> dict[str, SeenChannels]:
    """Returns what layers read, by tensor."""
    layers = [graph.node(name) for name in names]
    read = sorted({layer.input[0] for layer in layers if layer.op_type in LAYERS})
    return survey.look(graph, dict.fromkeys(read, 1))


def _find_levels(
    graph: Graph, group: ScaleGroup, readers: Sequence[str], seen: Mapping[str, SeenChannels]
) -> Levels | None:
    """Returns each channel's level [C], relative to the loudest; None where nothing is written.

    Of several writers the loudest counts. Channels that were 0 on all samples count too: their
    weights in the readers share the scales of the others'.
    """
    peaks = np.max([seen[graph.node(name).input[0]].peaks for name in readers], axis=0)
    written = np.max([write_level(graph, graph.node(name), seen) for name in group.writers], axis=0)
    is_seen = (peaks > 0) & (written > 0)
    if not is_seen.any() or not np.isfinite(peaks).all():
        return None
    levels = np.maximum(written / written[is_seen].max(), peaks / peaks.max())
    return np.where(written > 0, np.clip(levels, SMALLEST_LEVEL, 1.0), 1.0).astype(np.float64)


def write_level(graph: Graph, node: onnx.NodeProto, seen: Mapping[str, SeenChannels]) -> Levels:
    """Returns the level at which a layer writes each channel, [C], or a norm, whose input has 1.

    Args:
        graph: the float network.
        node: the layer or norm.
        seen: what layers read.
    """
    if node.op_type in LAYERS:
        weight = graph.weights[node.input[1]]
        groups, power = attribute(node, "group", 1), seen[node.input[0]].power
        axis = 1 if node.op_type == "ConvTranspose" else 0
        rows = np.square(grouped_rows(weight, axis, groups), dtype=np.float64)
        energy = rows.reshape(*rows.shape[:2], len(power) // groups, -1).sum(axis=3)
        level = np.sqrt(np.einsum("goi,gi->go", energy, power.reshape(groups, -1)))
        return np.asarray(level.reshape(output_channels(node, weight)))
    constants = ((graph.node(name), place) for name, place, _ in list_constants(graph, node))
    factors = [
        np.abs(graph.weights[maker.input[place]].astype(np.float64)).reshape(-1)
        for maker, place in constants
        if maker.op_type == "Mul" or (maker.op_type in NORMS[1] and place == 1)
    ]
    return np.asarray(np.prod(factors, axis=0))
