"""Follows narrower copies of stages in which channels are shuffled, to see what lies where."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from artifacts.edits import apply_edits
from artifacts.errors import InputError
from artifacts.module_copy import copy_module
from compress.prune.analysis.api import follow_channels
from compress.prune.analysis.families import Channels, find_families
from compress.prune.analysis.shuffles import (
    Layout,
    Place,
    Run,
    Stage,
    find_stages,
    read_layout,
    truncate,
)
from compress.prune.analysis.trace import Trace
from compress.prune.surgery import (
    Adjustments,
    ConflictError,
    attributes_of,
    edit_places,
    list_parts,
    name_adjustment,
    staged_size,
)


def add_shuffled_stages(
    module: nn.Module, inputs: tuple[Tensor, ...], channels: Channels
) -> Channels:
    """Finds finer groups where all channels of a stage, or many, are tied by nothing but shuffles.

    Args:
        module: the network, in evaluation mode and float64; it is not changed.
        inputs: its arguments.
        channels: its structure; channels that the user protects are frozen in it.

    Returns:
        the structure with a family for each such stage, in place of coarser ones.
    """
    stages = find_stages(channels.trace)
    if not stages:
        return channels
    known = find_families(channels.trace, stages)
    narrow = _Narrower(module, inputs, known, stages)
    layouts: list[dict[int, Layout]] = [{} for _ in stages]
    for adjustments in (frozenset[Any](), _all_adjustments(module, known, stages)):
        for widths in _in_turn([stage.widths() for stage in stages]):
            for found, layout, kept in zip(
                layouts, narrow.follow(widths, adjustments), widths, strict=True
            ):
                if layout is not None:
                    found[kept] = layout
        if any(layouts):
            break
    finer = [
        replace(stage, layouts=found) for stage, found in zip(stages, layouts, strict=True) if found
    ]
    return find_families(channels.trace, finer) if finer else channels


def _in_turn(widths: Sequence[list[int]]) -> Iterable[list[int]]:
    """Yields a width of each stage, until all of each have come."""
    for index in range(max(map(len, widths))):
        yield [one[min(index, len(one) - 1)] for one in widths]


def _all_adjustments(module: nn.Module, channels: Channels, stages: Sequence[Stage]) -> Adjustments:
    """Returns every number of a module that might be the size of what a stage is part of."""
    inside = channels.mark_groups({root for stage in stages for root in stage.members})
    parts = list_parts(module)
    return frozenset(
        name_adjustment(parts, site, owner, name)
        for site in channels.trace.sites
        if inside[site.ids].any()
        for owner, name, _ in attributes_of(parts, site)
    )


class _Narrower:
    """Follows copies of a network whose stages are narrower.

    Args:
        module: the network.
        inputs: its arguments.
        channels: its structure with the stages.
        stages: the stages.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: tuple[Tensor, ...],
        channels: Channels,
        stages: Sequence[Stage],
    ) -> None:
        self._module, self._inputs = module, inputs
        self._channels, self._stages = channels, stages

    def follow(self, widths: Sequence[int], adjustments: Adjustments) -> list[Layout | None]:
        """Returns the layout of each stage at so many units; None where there is none."""
        pairs = list(zip(self._stages, widths, strict=True))
        places = {place for stage in self._stages for place in stage.runs}
        kept = {
            place: truncate(pairs, place, self._channels.trace.weights[place[0]][place[1]].size)
            for place in places
        }
        leaves = self._channels.mark_groups(())
        try:
            edits = edit_places(
                self._module,
                self._channels,
                kept,
                lambda ids: staged_size(self._channels.roots[ids], pairs, leaves[ids]),
                adjustments,
            )
            narrow = apply_edits(copy_module(self._module), edits)
            trace = _follow_shapes(narrow, self._inputs)
        except (InputError, ConflictError):
            return [None] * len(pairs)
        return [
            read_layout(stage, units, trace, {p: _narrow_runs(pairs, stage, p) for p in stage.runs})
            for stage, units in pairs
        ]


def _follow_shapes(module: nn.Module, inputs: tuple[Tensor, ...]) -> Trace:
    """Follows a network without computing its values, unless its code asks for some."""
    try:
        return follow_channels(
            copy_module(module).to("meta"), tuple(value.to("meta") for value in inputs)
        )
    except InputError:
        return follow_channels(module, inputs)


def _narrow_runs(pairs: Sequence[tuple[Stage, int]], stage: Stage, place: Place) -> list[Run]:
    """Returns where a stage is along an axis once all stages are narrower."""
    lost = sorted(
        (run.start, run.length - run.length * kept // other.units)
        for other, kept in pairs
        for run in other.runs.get(place, ())
    )
    kept = next(units for other, units in pairs if other is stage)
    return [
        Run(
            run.start - sum(gone for start, gone in lost if start < run.start),
            run.length * kept // stage.units,
        )
        for run in stage.runs[place]
    ]
