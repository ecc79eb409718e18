"""Prunes to a latency: choose by a measured table, then measure the network itself and correct."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from artifacts.errors import InputError
from compress.progress import Progress
from compress.prune.cost import LayerCost, LayerSum
from compress.prune.pruner import Cut, Pruner
from compress.prune.select import Selection

TRIALS = 8
AIM, WITHIN = 0.985, 0.03
"""Share of the target that is aimed at, and the deviation from the aim at which the search ends."""
ALLOWED = 0.05
USELESS = 0.002
"""A cut that saves less than this share of the latency brings nothing."""


@dataclass(frozen=True, kw_only=True)
class LatencyGoal:
    """Bring the latency of one inference down to a target.

    Attributes:
        target_ms: on the target runtime, as `measure` gives it.
        measure: exports a network and measures its latency in ms, beside the original's.
        layer_time: measured time of a layer in ms at some channel counts.
    """

    target_ms: float
    measure: Callable[[nn.Module], float]
    layer_time: LayerCost

    def __post_init__(self) -> None:
        if not self.target_ms > 0:
            raise InputError(f"--target-ms is {self.target_ms:g}", "a number above 0")


def cut_to_latency(
    pruner: Pruner, goal: LatencyGoal, progress: Progress | None = None
) -> tuple[Cut, tuple[float, float], list[str]]:
    """Finds the cut whose measured latency is at the target.

    The table predicts what each layer saves; what it cannot know (fusion, memory, everything that
    is not a layer) is corrected by measuring each candidate: the next prediction that is aimed at
    is found by interpolation between the measured candidates above and below the target.

    Returns:
        the cut, the latency in ms before and after, and notes for the user.

    Raises:
        InputError: the target is not below the network's latency, or below that of the narrowest
            network; the message says what that is.
    """
    channels = pruner.channels
    everything = {family.name: len(family.roots) for family in channels.families}
    before = goal.measure(pruner.module)
    if goal.target_ms >= before:
        raise InputError(
            f"--target-ms {goal.target_ms:g} is not below the network's latency",
            f"less than {before:.3g} ms",
        )
    layers = LayerSum(channels, goal.layer_time)
    full = layers.total(everything)
    aim = goal.target_ms * AIM
    floor = pruner.floor(layers)
    low = (floor.cost, goal.measure(pruner.narrow(floor)))
    if low[1] > goal.target_ms:
        raise InputError(
            f"--target-ms {goal.target_ms:g} is faster than the narrowest network",
            f"{low[1]:.3g} ms at least",
            "allow narrower layers with --fewest, or choose another network",
        )
    high, best = (full, before), (floor, low[1])
    for trial in range(TRIALS):
        if progress is not None:
            progress("measure candidates", trial, TRIALS)
        selection = pruner.select(layers, _between(low, high, aim))
        measured = goal.measure(pruner.narrow(selection))
        if _off(measured, goal.target_ms) < _off(best[1], goal.target_ms):
            best = (selection, measured)
        if abs(measured / aim - 1) <= WITHIN:
            break
        if measured > aim:
            high = (selection.cost, measured)
        else:
            low = (selection.cost, measured)
        if high[0] <= low[0]:
            break
    cut = pruner.cut(best[0])
    after = goal.measure(cut.module)
    return cut, (before, after), _notes(pruner, layers, best[0], after, goal.target_ms)


def _off(measured: float, target: float) -> float:
    """Returns how far a latency is off; too slow counts twice."""
    return (measured / target - 1) * 2 if measured > target else 1 - measured / target


def _between(low: tuple[float, float], high: tuple[float, float], aim: float) -> float:
    """Returns the predicted cost at which `aim` ms are expected, kept inside the bracket."""
    if high[1] <= low[1]:
        return (low[0] + high[0]) / 2
    share = (aim - low[1]) / (high[1] - low[1])
    return low[0] + (high[0] - low[0]) * min(max(share, 0.05), 0.95)


def _notes(
    pruner: Pruner,
    layers: LayerSum,
    selection: Selection,
    after: float,
    target_ms: float,
) -> list[str]:
    notes = []
    if abs(after / target_ms - 1) > ALLOWED:
        notes.append(
            f"measured {after:.3g} ms, which is not within 5 % of {target_ms:g} ms: widths change "
            "in steps, or the machine is disturbed"
        )
    whole = layers.total({family.name: len(family.roots) for family in pruner.channels.families})
    useless = []
    for family in pruner.channels.families:
        kept = selection.kept[family.name]
        if kept < len(family.roots):
            wider = {**selection.kept, family.name: len(family.roots)}
            if layers.saved(wider, family, kept) < USELESS * whole:
                useless.append(family.name)
    if useless:
        notes.append(
            f"the table says that {len(useless)} cuts bring nothing by themselves "
            f"(less than {USELESS:.1%} of the latency): {', '.join(useless[:5])}"
        )
    return notes
