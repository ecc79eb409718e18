"""Channels that a Concat joins get one level, where the layers that write them have their own.

What `written_levels` does for a chain of layers: a channel goes as far as the weights of its writer
say. Variables that meet in any tensor have one reference, read or not, since what is joined,
shuffled and split again has one scale. Those that an activation writes stay as they are, and are
the reference where there are any: no product is put anywhere. Only where `joined_scales` would
leave much more of the error, which begins with one level then.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from compress.quantize.channel_survey import ChannelSurvey, SeenChannels
from compress.quantize.graph import Graph
from compress.quantize.placement import Placement
from compress.quantize.qparams import INT8_WEIGHTS, WeightGrids
from compress.quantize.repairs.channel_variables import ChannelVariables, Component
from compress.quantize.repairs.equalization import choose_reach, is_depthwise
from compress.quantize.repairs.joined_scales import (
    JoinedError,
    choose_joined,
    insert_factors,
)
from compress.quantize.repairs.scale_group import LAYERS
from compress.quantize.repairs.written_levels import (
    LEAST_SPREAD,
    SMALLEST_LEVEL,
    Levels,
    choose_levels,
    write_level,
)


def level_joined(
    graph: Graph,
    survey: ChannelSurvey,
    placement: Placement,
    quantized: Collection[str],
    weight_grids: WeightGrids = INT8_WEIGHTS,
) -> list[str]:
    """Rescales joined channels in place where `scale_joined` would leave twice the error.

    See `ScaleRepair` for arguments and result.
    """
    channels = ChannelVariables.follow(graph)
    groups = [
        group
        for group in channels.components(channels.of)
        if group.writers and group.variables & channels.joins
    ]
    layers = {name for group in groups for name in (*group.readers, *group.writers)}
    read = {graph.node(name).input[0] for name in layers if graph.node(name).op_type in LAYERS}
    if layers.isdisjoint(quantized):
        return []
    seen = survey.look(graph, dict.fromkeys(sorted(read), 1))
    factors = np.ones(channels.count)
    done = []
    for group in groups:
        readers = [name for name in group.readers if name in quantized]
        judge = JoinedError(graph, channels, readers, seen, placement, weight_grids)
        chosen = _choose(judge, group, len(survey.samples))
        if chosen is not None:
            factors *= chosen
            done.append(
                f"levelled {np.count_nonzero(chosen != 1)} joined channels "
                f"into {', '.join(readers)}, factors {chosen.min():.2g} to {chosen.max():.2g}"
            )
    if done:
        insert_factors(graph, channels, factors, survey)
    return done


def _choose(judge: JoinedError, group: Component, samples: int) -> Levels | None:
    """Returns the factor of each variable; None where `scale_joined` leaves little more error."""
    levels = _find_levels(replace(judge, readers=group.readers), group)
    if levels is None or levels.max() < LEAST_SPREAD * levels.min():
        return None
    is_depthwise_only = all(is_depthwise(judge.graph, name) for name in judge.readers)
    scaled = choose_joined(judge, group, choose_reach(samples, is_depthwise_only), 1.0)
    return choose_levels(judge.measure, levels, scaled)


def _find_levels(judge: JoinedError, group: Component) -> Levels | None:
    """Returns each variable's level, 1 of those that stay; None where no layer writes any.

    Relative to the loudest that stays, and to the loudest of all where none does; layers in float
    count too, since what they read was joined in integers.
    """
    channels = judge.channels
    peaks = judge.reduce(lambda seen: seen.peaks)
    written = _read_written(judge.graph, channels, group, judge.seen)
    is_seen = (peaks > 0) & (written > 0)
    if not is_seen.any() or not np.isfinite(peaks).all():
        return None
    stays = (peaks > 0) & (written == 0)
    loudness = judge.reduce(lambda seen: np.sqrt(seen.power)) if stays.any() else written
    reference = stays if stays.any() else is_seen
    levels = np.maximum(written / loudness[reference].max(), peaks / peaks[reference].max())
    return np.where(written > 0, np.clip(levels, SMALLEST_LEVEL, 1 / SMALLEST_LEVEL), 1.0)


def _read_written(
    graph: Graph,
    channels: ChannelVariables,
    group: Component,
    seen: Mapping[str, SeenChannels],
) -> Levels:
    """Returns the level at which layers write each variable; 0 of those that activations write."""
    written = np.zeros(channels.count)
    for name in group.writers:
        variables = channels.of[channels.writers[name]]
        np.maximum.at(written, variables, write_level(graph, graph.node(name), seen))
    is_free = np.zeros(channels.count, bool)
    is_free[list(group.variables)] = True
    for tensor in group.makers:
        is_free[channels.of[tensor]] = False
    return np.where(is_free, written, 0.0)
