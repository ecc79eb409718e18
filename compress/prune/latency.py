"""Prunes to a latency: choose by a measured table, then measure the network itself and correct."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
from torch import nn

from artifacts.errors import InputError
from compress.errors import FastEnoughError, LatencyError
from compress.progress import Progress
from compress.prune.cost import LayerCost, LayerSum, count_macs
from compress.prune.pruner import Cut, Pruner
from compress.prune.select import Selection

TRIALS = 12
AIM, WITHIN = 0.99, 0.02
"""Share of the target that is aimed at, and the deviation from the aim at which the search ends."""
REPEATS = 3
"""A candidate is taken after so many measurements; their median survives one that was disturbed."""
ALLOWED = 0.05
SEARCHES = 2
"""Where the chosen network, measured once more, is not at the target, all is measured anew."""
USELESS = 0.002
"""A cut that saves less than this share of the latency brings nothing."""


Clock = Callable[[nn.Module], tuple[float, float]]
"""Exports a network and measures it; returns its latency in ms and the original's, in turns."""


@dataclass(frozen=True, kw_only=True)
class LatencyGoal:
    """Bring the latency of one inference down: to a time, or to be so many times as fast.

    Attributes:
        measure: measures a network beside the original.
        layer_time: measured time of a layer in ms at some channel counts.
        target_ms: on the target runtime, as `measure` gives it.
        speed_up: how many times as fast as the original; exactly one of both is given.
    """

    measure: Clock
    layer_time: LayerCost
    target_ms: float | None = None
    speed_up: float | None = None

    def __post_init__(self) -> None:
        check_latency(self.target_ms, self.speed_up)

    def require_faster(self, original_ms: float) -> None:
        """Refuses a target that the original keeps already.

        Raises:
            FastEnoughError: it does.
        """
        if self.share(original_ms) >= 1:
            raise FastEnoughError(
                f"--target-ms {self.target_ms:g} is not below the network's latency",
                f"less than {original_ms:.3g} ms",
                latency_ms=original_ms,
            )

    def share(self, original_ms: float) -> float:
        """Returns the share of the original's latency that is to be left."""
        if self.speed_up is not None:
            return 1 / self.speed_up
        return (self.target_ms or 0.0) / original_ms


def check_latency(target_ms: float | None, speed_up: float | None) -> None:
    """Checks what latency is asked for: one of a time in ms and a factor of speed.

    Raises:
        InputError: both are given or none, or it is out of range.
    """
    if (target_ms is None) == (speed_up is None):
        raise InputError("a latency has two goals or none", "--target-ms or --speed-up")
    if target_ms is not None and not 0 < target_ms < math.inf:
        raise InputError(f"--target-ms is {target_ms:g}", "a number above 0")
    if speed_up is not None and not 1 < speed_up < math.inf:
        raise InputError(f"--speed-up is {speed_up:g}", "a number above 1")


@dataclass
class _Candidate:
    """A selection, and how much of the original's latency it took in each measurement."""

    selection: Selection
    measured: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        return median(self.measured)


class _Candidates:
    """What was measured, by the widths kept.

    Latencies are kept as shares of the original's in the same minute, so that a machine that
    slows down does not move them. What the original takes is the median over all measurements.

    Args:
        pruner: makes the candidates.
        measure: measures them.
    """

    def __init__(self, pruner: Pruner, measure: Clock) -> None:
        self._pruner = pruner
        self._measure = measure
        self._by_widths: dict[tuple[int, ...], _Candidate] = {}
        self._original_ms: list[float] = []

    @property
    def original_ms(self) -> float:
        """The original's latency."""
        return median(self._original_ms)

    def add(self, selection: Selection) -> _Candidate:
        """Measures a selection; the same widths are the same candidate."""
        candidate = self._by_widths.setdefault(_widths(selection), _Candidate(selection))
        candidate.measured.append(self.measure(self._pruner.narrow(selection)))
        return candidate

    def measure(self, module: nn.Module) -> float:
        """Returns the share of the original's latency that a network takes."""
        found_ms, original_ms = self._measure(module)
        self._original_ms.append(original_ms)
        return found_ms / original_ms

    def count(self, selection: Selection) -> int:
        """Returns how often a selection was measured."""
        known = self._by_widths.get(_widths(selection))
        return 0 if known is None else len(known.measured)

    def priced_by(self, cost: LayerSum, selections: Sequence[Selection]) -> "_Candidates":
        """Returns only the candidates of these selections, with what they cost by other means."""
        found = _Candidates(self._pruner, self._measure)
        found._original_ms = self._original_ms
        for selection in selections:
            known = self._by_widths[_widths(selection)]
            priced = replace(selection, cost=cost.total(selection.kept))
            found._by_widths[_widths(selection)] = _Candidate(priced, known.measured)
        return found

    def nearest(self, share: float) -> _Candidate:
        """Returns the candidate nearest to a share."""
        return min(self._by_widths.values(), key=lambda item: abs(item.share - share))

    def cost_at(self, share: float) -> float:
        """Returns the predicted cost at which a share is expected.

        Latency rises with the predicted cost, so measurements that say otherwise are noise: the
        mean of the narrowest rising curves above and below all of them is interpolated.
        """
        known = sorted(self._by_widths.values(), key=lambda item: item.selection.cost)
        measured = np.array([item.share for item in known])
        above = np.maximum.accumulate(measured)
        below = np.minimum.accumulate(measured[::-1])[::-1]
        costs = [item.selection.cost for item in known]
        return float(np.interp(share, (above + below) / 2, costs))


def cut_to_latency(
    pruner: Pruner, goal: LatencyGoal, progress: Progress | None = None
) -> tuple[Cut, tuple[float, float], list[str]]:
    """Finds the cut whose measured latency is at the target.

    The table predicts what each layer saves; what it cannot know (fusion, memory, everything that
    is not a layer) is corrected by measuring: the next prediction that is aimed at is interpolated
    between all candidates measured so far. One measurement can be wrong by several percent, so a
    candidate is measured again before it is taken. The time of a layer with few channels is mostly
    its call, so the table may know of no narrower network although the narrowest is faster; then
    the multiplications choose, and measuring finds how many of them.

    Returns:
        the cut, the latency in ms before and after, and notes for the user. The latency after is
        measured once more, after the choice. Where that is off by more than `ALLOWED`, what was
        measured before no longer holds: the search begins again, and the nearer of both is taken.

    Raises:
        InputError: the target is not below the network's latency, or below that of the narrowest
            network; the message says what that is.
    """
    layers = LayerSum(pruner.channels, goal.layer_time)
    candidates = _Candidates(pruner, goal.measure)
    whole = candidates.add(pruner.select(layers, math.inf))
    floor = candidates.add(pruner.floor(layers))
    original_ms = candidates.original_ms
    goal.require_faster(original_ms)
    if floor.share > goal.share(original_ms):
        raise _refuse_below(goal, original_ms, floor.share * original_ms)
    ends = (whole.selection, floor.selection)
    landings = []
    for _ in range(SEARCHES):
        chosen = _search_both(pruner, goal, (layers, *ends), candidates, progress).selection
        cut = pruner.cut(chosen)
        after = candidates.measure(cut.module)
        before_ms = candidates.original_ms
        off = after / goal.share(before_ms) - 1
        landings.append((abs(off), cut, (before_ms, after * before_ms), chosen, off))
        if abs(off) <= ALLOWED:
            break
        candidates = _Candidates(pruner, goal.measure)
        for selection in ends:
            candidates.add(selection)
    _, cut, times_ms, chosen, off = min(landings, key=lambda item: item[0])
    return cut, times_ms, _notes(pruner, layers, chosen, off)


def _refuse_below(goal: LatencyGoal, original_ms: float, fastest_ms: float) -> LatencyError:
    """Returns the error for what no network within the limits reaches, in the goal's own terms."""
    asked_ms = goal.share(original_ms) * original_ms
    what, expected = f"{asked_ms:.4g} ms is faster", f"{fastest_ms:.3g} ms at least"
    if goal.speed_up is not None:
        most = math.floor(100 * original_ms / fastest_ms) / 100
        what = f"{goal.speed_up:g} times as fast ({asked_ms:.4g} ms) is faster"
        expected = f"{most:g} times at most ({fastest_ms:.3g} ms)"
    return LatencyError(
        f"{what} than the narrowest network",
        expected,
        "allow narrower layers with --fewest, or choose another network",
        fastest_ms=fastest_ms,
    )


def _search_both(
    pruner: Pruner,
    goal: LatencyGoal,
    known: tuple[LayerSum, Selection, Selection],
    candidates: _Candidates,
    progress: Progress | None,
) -> _Candidate:
    """Searches by the table, and by multiplications where the table knows of nothing fast enough.

    Args:
        pruner: makes the candidates.
        goal: to land at.
        known: the table, the whole network and the narrowest.
        candidates: with these two measured.
        progress: is told what is measured.
    """
    layers, *ends = known
    found = _search(pruner, goal, layers, candidates, progress)
    share = goal.share(candidates.original_ms)
    if found.share <= (1 + ALLOWED) * share:
        return found
    work = LayerSum(pruner.channels, count_macs)
    other = _search(pruner, goal, work, candidates.priced_by(work, ends), progress)
    return min(found, other, key=lambda item: abs(item.share - AIM * share))


def _search(
    pruner: Pruner,
    goal: LatencyGoal,
    layers: LayerSum,
    candidates: _Candidates,
    progress: Progress | None,
) -> _Candidate:
    """Measures candidates until one is at the target; returns the one nearest to it."""
    for trial in range(TRIALS):
        if progress is not None:
            progress("measure candidates", trial, TRIALS)
        aim = goal.share(candidates.original_ms) * AIM
        nearest = candidates.nearest(aim)
        selection = nearest.selection
        if abs(nearest.share / aim - 1) > WITHIN:
            selection = pruner.select(layers, candidates.cost_at(aim))
        if candidates.count(selection) >= REPEATS:
            break
        candidates.add(selection)
    return candidates.nearest(goal.share(candidates.original_ms) * AIM)


def _widths(selection: Selection) -> tuple[int, ...]:
    return tuple(selection.kept[name] for name in sorted(selection.kept))


def _notes(pruner: Pruner, layers: LayerSum, selection: Selection, off: float) -> list[str]:
    notes = []
    if abs(off) > ALLOWED:
        notes.append(
            f"the latency is {off:+.1%} beside the target, more than 5 %: widths change in steps, "
            "or the machine is disturbed"
        )
    whole = layers.total({family.name: family.count for family in pruner.channels.families})
    useless = []
    for family in pruner.channels.families:
        kept = selection.kept[family.name]
        if kept < family.count:
            wider = {**selection.kept, family.name: family.count}
            if layers.saved(wider, family, kept) < USELESS * whole:
                useless.append(family.name)
    if useless:
        notes.append(
            f"by the table, cuts that bring less than {USELESS:.1%} of the latency by themselves: "
            f"{len(useless)} ({', '.join(useless[:5])})"
        )
    return notes
