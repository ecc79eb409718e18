"""Stages in which channels change places (ShuffleNetV2): only how many leave has to agree.

A channel that a block makes passes by some of the blocks behind it, until a shuffle moves it into
the half that a block reads. Which channels those are follows from their places alone. In a narrower
stage the shuffle moves others, but any channel may take any place, where the weights that make and
read it are put in that order. So the channels are told apart by who makes and who reads them (a
*kind*), and of each kind as many stay as the narrower stage has of it: found by following it, too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from compress.prune.analysis.channel_sets import Ids
from compress.prune.analysis.trace import Trace

Place = tuple[str, int]
Kind = tuple[tuple[Place, int], ...]
"""The weights and axes that a channel occupies, each with how often."""
_MOST_WIDTHS = 16


@dataclass(frozen=True)
class Run:
    """Neighbouring indices of a weight's axis that a stage occupies: the first and how many."""

    start: int
    length: int


@dataclass(frozen=True)
class Layout:
    """A narrower stage.

    Attributes:
        counts: how many channels of each kind it has.
        slots: per place that it occupies, the kind of each channel and the how-manieth it is of it.
    """

    counts: tuple[int, ...]
    slots: Mapping[Place, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Stage:
    """Channels of which as many have to leave at every place, while any may take another's place.

    Attributes:
        units: how many widths it could have, its own included.
        kinds: channel groups by who makes and who reads them.
        names: of the kinds.
        runs: where they are.
        layouts: the narrower stages that are known, by their units.
    """

    units: int
    kinds: tuple[tuple[int, ...], ...]
    names: tuple[Kind, ...]
    runs: Mapping[Place, tuple[Run, ...]]
    layouts: Mapping[int, Layout]

    @property
    def members(self) -> tuple[int, ...]:
        """All its channel groups."""
        return tuple(sorted(root for kind in self.kinds for root in kind))

    @property
    def places(self) -> tuple[tuple[Place, int], ...]:
        """Weights and axes, with the number of indices for each unit."""
        return tuple(
            (place, sum(run.length for run in runs) // self.units)
            for place, runs in sorted(self.runs.items())
        )

    def leave(self, kept: int, scores: NDArray[np.float64] | None = None) -> set[int]:
        """Returns the groups that leave for so many units: of each kind those that score least."""
        if kept == self.units:
            return set()
        gone: set[int] = set()
        for kind, count in zip(self.kinds, self.layouts[kept].counts, strict=True):
            ordered = (
                kind if scores is None else sorted(kind, key=lambda root: (scores[root], root))
            )
            gone.update(ordered[: len(kind) - count])
        return gone

    def units_without(self, removed: set[int]) -> int | None:
        """Returns how many units are left without these groups; None where they are no stage."""
        left = tuple(sum(root not in removed for root in kind) for kind in self.kinds)
        if left == tuple(map(len, self.kinds)):
            return self.units
        return next((n for n, layout in self.layouts.items() if layout.counts == left), None)

    def order(self, place: Place, roots: Ids, removed: set[int]) -> list[tuple[Run, list[int]]]:
        """Returns the indices of an axis that stay in each run, in their new order.

        Args:
            place: the weight and its axis.
            roots: the channel group of each index along it.
            removed: the groups that leave, see `units_without`.
        """
        kept = self.units_without(removed)
        runs = self.runs.get(place, ())
        if not runs:
            return []
        if kept is None or kept == self.units:
            return [(run, list(range(run.start, run.start + run.length))) for run in runs]
        left = [[root for root in kind if root not in removed] for kind in self.kinds]
        index = {root: position for position, root in enumerate(roots.tolist())}
        slots = iter(self.layouts[kept].slots[place])
        return [
            (run, [index[left[kind][rank]] for kind, rank in (next(slots) for _ in range(count))])
            for run, count in ((run, run.length * kept // self.units) for run in runs)
        ]

    def widths(self) -> list[int]:
        """Returns the units of the narrower stages to look at, most first."""
        step = 1
        while self.units > step * _MOST_WIDTHS:
            step *= 2
        return [kept for kept in range(self.units - 1, 0, -1) if kept % step == 0]


def find_stages(trace: Trace) -> list[Stage]:
    """Finds the stages whose channels could leave in finer groups if they took others' places."""
    together, reasons = trace.sets.solve()
    apart, frozen = trace.sets.solve(with_counts=False)
    kinds = _list_kinds(trace, apart)
    counted = trace.sets.join_counted()
    alike: dict[int, set[int]] = {}
    for root in kinds:
        alike.setdefault(int(counted[root]), set()).add(root)
    coarse = _list_kinds(trace, together)
    now = Counter(coarse.values())
    stages = []
    for members in alike.values():
        groups = {int(together[root]) for root in members}
        if groups & reasons.keys() or members & frozen.keys():
            continue
        stage = _make_stage(trace, apart, members, kinds)
        if stage is not None and stage.units > min(now[coarse[root]] for root in groups):
            stages.append(stage)
    return stages


def _list_kinds(trace: Trace, roots: Ids) -> dict[int, Kind]:
    """Returns the places of each channel group."""
    places: dict[int, dict[Place, int]] = {}
    for name, axes in trace.weights.items():
        for axis, ids in axes.items():
            for root, count in zip(*np.unique(roots[ids], return_counts=True), strict=True):
                places.setdefault(int(root), {})[name, axis] = int(count)
    return {root: tuple(sorted(found.items())) for root, found in places.items()}


def _make_stage(
    trace: Trace, apart: Ids, members: set[int], kinds: dict[int, Kind]
) -> Stage | None:
    """Returns the stage of these groups; None where one is more than a channel at some place."""
    if any(count > 1 for root in members for _, count in kinds[root]):
        return None
    by_kind: dict[Kind, list[int]] = {}
    for root in sorted(members):
        by_kind.setdefault(kinds[root], []).append(root)
    if len(by_kind) < 2:
        return None
    used = np.concatenate([layer.outputs for layer in trace.layers])
    if not np.isin(apart[used], list(members)).any():
        return None
    runs = {
        (name, axis): tuple(find_runs(apart[ids], members))
        for name, axes in trace.weights.items()
        for axis, ids in axes.items()
        if np.isin(apart[ids], list(members)).any()
    }
    units = int(np.gcd.reduce([run.length for found in runs.values() for run in found]))
    return Stage(units, tuple(map(tuple, by_kind.values())), tuple(by_kind), runs, {})


def find_runs(roots: Ids, members: Iterable[int]) -> list[Run]:
    """Returns where some groups are along an axis."""
    found, start = [], 0
    for is_inside, run in groupby(np.isin(roots, list(members)).tolist()):
        length = len(list(run))
        if is_inside:
            found.append(Run(start, length))
        start += length
    return found


def truncate(stages: Sequence[tuple[Stage, int]], place: Place, size: int) -> list[int]:
    """Returns the indices of an axis that stay where each run of a stage loses its last ones."""
    gone: set[int] = set()
    for stage, kept in stages:
        for run in stage.runs.get(place, ()):
            gone.update(range(run.start + run.length * kept // stage.units, run.start + run.length))
    return [index for index in range(size) if index not in gone]


def read_layout(
    stage: Stage, kept: int, trace: Trace, runs: Mapping[Place, list[Run]]
) -> Layout | None:
    """Returns how a narrower stage is laid out.

    Args:
        stage: the stage at its full width.
        kept: its units in the narrower network.
        trace: of the narrower network.
        runs: where the narrower stage is in it.

    Returns:
        None where it has channels of a kind that the stage has fewer of.
    """
    apart, _ = trace.sets.solve(with_counts=False)
    numbers = {name: number for number, name in enumerate(stage.names)}
    rows = {
        place: np.concatenate(
            [
                apart[trace.weights[place[0]][place[1]]][run.start : run.start + run.length]
                for run in found
            ]
        )
        for place, found in runs.items()
    }
    named = _list_kinds(trace, apart)
    found = sorted({int(root) for row in rows.values() for root in row})
    ranks: dict[int, tuple[int, int]] = {}
    counts = [0] * len(stage.kinds)
    for root in found:
        number = numbers.get(named[root])
        if number is None or counts[number] == len(stage.kinds[number]):
            return None
        ranks[root] = number, counts[number]
        counts[number] += 1
    slots = {place: tuple(ranks[int(root)] for root in row) for place, row in rows.items()}
    return Layout(tuple(counts), slots)
