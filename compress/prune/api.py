"""Prunes a network to a share of its channels, to a count of multiplications, or to a latency."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from artifacts.edits import apply_edits
from artifacts.errors import InputError
from artifacts.module_copy import leave_inference
from artifacts.wording import name_some
from compress.constant_outputs import describe_constant, warn_of_constant
from compress.progress import Progress
from compress.prune.analysis.families import Channels, LeftAlone
from compress.prune.branches import find_branches, note_unused
from compress.prune.cost import ChannelCount, Cost, LayerSum, count_macs
from compress.prune.latency import LatencyGoal, cut_to_latency
from compress.prune.pruner import Cut, PruneData, Pruner, UnprovenError, probe_quality, run_all
from compress.prune.settings import PruneSettings
from compress.prune.surgery import Edits
from compress.prune.training_parts import note_training
from compress.prune.usable_weights import require_full_precision
from compress.train.threads import use_threads

__all__ = [
    "LatencyGoal",
    "MacsGoal",
    "PruneData",
    "PruneResult",
    "PruneSettings",
    "RatioGoal",
    "apply_edits",
    "prune_module",
]
_MOST_NAMES = 3
_CHEAP = 0.5
"""Channels that save less than this share of what they are of all save little."""
_UNREAD = (
    "1 layer runs whose result no output needs: {names}; "
    "it counts for nothing, since an export leaves it out",
    "{count} layers run whose results no output needs: {names}; "
    "they count for nothing, since an export leaves them out",
)
_CONSTANT = (
    "1 layer computes the same for every input: {names}; "
    "it counts for nothing, since a runtime computes it once",
    "{count} layers compute the same for every input: {names}; "
    "they count for nothing, since a runtime computes them once",
)
"""What is said of one layer, and of several."""


@dataclass(frozen=True)
class RatioGoal:
    """Remove this share of the channels that can be removed; 0 < share < 1."""

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InputError(f"--ratio is {self.share:g}", "above 0 and below 1")


@dataclass(frozen=True)
class MacsGoal:
    """Bring the multiplications of one inference down to this many; up to 1: to this share."""

    macs: float

    def __post_init__(self) -> None:
        if not self.macs > 0:
            raise InputError(f"--macs is {self.macs:g}", "a number above 0")


@dataclass(frozen=True)
class Width:
    """A feature map before and after: the weight that makes it, and its channels."""

    weight: str
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class PruneResult:
    """A pruned network.

    Attributes:
        module: the network.
        edits: what makes it from the original, see `artifacts.edits`.
        widths: every feature map that could be pruned.
        left_alone: channels that could not, and why.
        macs: multiplications before and after.
        quality: SQNR in dB of each output against the original, after each step.
        differences: per step, how far the pruned network was from the zeroed one (float64).
        narrowed_statistics: what that zeroed network computes over the remaining channels only;
            there it differs from literal zeroing.
        notes: what the user should know.
        latency_ms: of the original and of the result, where it was measured.
    """

    module: nn.Module
    edits: Edits
    widths: tuple[Width, ...]
    left_alone: tuple[LeftAlone, ...]
    macs: tuple[float, float]
    quality: tuple[dict[str, float], ...] = ()
    differences: tuple[float, ...] = ()
    narrowed_statistics: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    latency_ms: tuple[float, float] | None = None


@dataclass
class _Run:
    """A network between two steps."""

    module: nn.Module
    edits: list[dict[str, Any]] = field(default_factory=list)
    quality: list[dict[str, float]] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    narrowed_statistics: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    after: dict[str, int] = field(default_factory=dict)
    latency_ms: tuple[float, float] | None = None


def prune_module(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    goal: RatioGoal | MacsGoal | LatencyGoal,
    settings: PruneSettings | None = None,
    data: PruneData | None = None,
    progress: Progress | None = None,
) -> PruneResult:
    """Prunes a network.

    Args:
        module: any network, in evaluation mode; it is not changed.
        inputs: arguments to run it with, batch 1.
        goal: how far.
        settings: how.
        data: samples for importance, BatchNorm and the quality probe.
        progress: told (what, done, total).

    Returns:
        the pruned network; it is proven to compute what the original does with those channels
        zeroed (to 1e-9 in float64), before BatchNorm's statistics are taken anew.

    Raises:
        InputError: the goal cannot be reached (the message says how far it goes), or the network
            cannot be pruned.
    """
    settings = settings or PruneSettings()
    with use_threads(settings.threads), torch.inference_mode(mode=False), torch.enable_grad():
        return _prune(
            leave_inference(module), inputs, goal, settings, data or PruneData(), progress
        )


def _prune(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    goal: RatioGoal | MacsGoal | LatencyGoal,
    settings: PruneSettings,
    data: PruneData,
    progress: Progress | None,
) -> PruneResult:
    if data.held_out or data.importance.images:
        require_full_precision(module)
    wanted = run_all(module, data.held_out)
    run = _Run(module)
    first: Pruner | None = None
    steps = 1 if isinstance(goal, LatencyGoal) else settings.steps
    start = budget = 0.0
    others = find_branches(module, inputs, data.samples)
    for step in range(steps):
        pruner = Pruner(run.module, inputs, settings, data, progress, others)
        first = first or pruner
        if isinstance(goal, LatencyGoal):
            cut = _prove(pruner, partial(_cut_to_latency, pruner, goal, run, progress))
        else:
            now = _cost(goal, pruner.channels).total(_all(pruner.channels))
            if not step:
                start, budget = now, _budget(goal, pruner)
            share = (start + (budget - start) * (step + 1) / steps) / now
            cut = _prove(pruner, partial(_cut_to_share, pruner, goal, share))
        if not _take(run, pruner, cut, settings, data, wanted):
            break
        if progress is not None:
            progress("prune", step + 1, steps)
    if first is None:
        raise InputError("nothing was pruned")
    run.notes += note_training(module, run.module, inputs, first.channels.trace)
    run.notes += _note_constants(wanted) + _note_unneeded(first.channels)
    run.notes += note_unused(first.channels.trace)
    result = _result(run, first)
    return replace(result, notes=(*result.notes, *_note_cheap(goal, *result.macs)))


def _prove(pruner: Pruner, make_cut: Callable[[], Cut]) -> Cut:
    """Returns a cut that stands the proof, without the families with which it did not."""
    while True:
        try:
            return make_cut()
        except UnprovenError as error:
            pruner.spare_disturbers(error.selection)


def _cut_to_share(pruner: Pruner, goal: RatioGoal | MacsGoal, share: float) -> Cut:
    """Returns the cut that leaves a share of the cost."""
    cost = _cost(goal, pruner.channels)
    wanted = share * cost.total(_all(pruner.channels))
    if wanted < pruner.floor(cost).cost:
        raise _too_far(goal, pruner)
    return pruner.cut(pruner.select(cost, wanted))


def _note_constants(wanted: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """Names the outputs of the original that no sample changes: any pruned network gives them."""
    found = {
        name: describe_constant(sample[name].numpy() for sample in wanted)
        for name in (wanted[0] if wanted else ())
    }
    return [
        warn_of_constant(f"output '{name}' of the original", how, "held-out")
        for name, how in found.items()
        if how is not None
    ]


def _note_unneeded(channels: Channels) -> list[str]:
    """Names the layers that run for nothing, such as the last of a backbone that no head reads.

    A module that also does what is needed is none that computes the same for every input: one that
    looks at a template and at each picture, or a recurrent one with its first state.
    """
    trace = channels.trace
    busy = {layer.module for layer in trace.needed_layers}
    unread: dict[str, None] = {}
    constant: dict[str, None] = {}
    for layer in trace.layers:
        if layer.weight in trace.unneeded:
            unread[layer.module] = None
        elif layer.is_constant and layer.module not in busy:
            constant[layer.module] = None
    return [
        phrases[len(modules) > 1].format(
            count=len(modules), names=name_some(list(modules), _MOST_NAMES)
        )
        for modules, phrases in ((unread, _UNREAD), (constant, _CONSTANT))
        if modules
    ]


def _note_cheap(goal: RatioGoal | MacsGoal | LatencyGoal, before: float, after: float) -> list[str]:
    """Says where the channels that left saved far fewer multiplications than their share."""
    saved = 1 - after / before
    if not isinstance(goal, RatioGoal) or saved > goal.share * _CHEAP:
        return []
    return [
        f"{goal.share:.0%} of the channels left with {saved:.0%} of the multiplications: those "
        "that matter least are cheap here; --macs and --speed-up go by what channels cost"
    ]


def _all(channels: Channels) -> dict[str, int]:
    return {family.name: family.count for family in channels.families}


def _cost(goal: RatioGoal | MacsGoal, channels: Channels) -> Cost:
    return ChannelCount(channels) if isinstance(goal, RatioGoal) else LayerSum(channels, count_macs)


def _budget(goal: RatioGoal | MacsGoal, pruner: Pruner) -> float:
    """Returns the cost to reach; refuses what would empty a layer."""
    cost = _cost(goal, pruner.channels)
    full, least = cost.total(_all(pruner.channels)), pruner.floor(cost).cost
    if isinstance(goal, RatioGoal):
        wanted = full * (1 - goal.share)
    else:
        wanted = goal.macs * full if goal.macs <= 1 else goal.macs
    if wanted < least:
        raise _too_far(goal, pruner)
    return wanted


def _too_far(goal: RatioGoal | MacsGoal, pruner: Pruner) -> InputError:
    """Returns the error for a goal that would empty a layer."""
    cost, limits = _cost(goal, pruner.channels), pruner.limits
    full, least = cost.total(_all(pruner.channels)), pruner.floor(cost).cost
    if least == full:
        return InputError(
            f"no layer can lose channels with --round-to {limits.round_to} and "
            f"--fewest {limits.fewest}",
            "layers with more channels",
            "lower --round-to or --fewest",
        )
    if isinstance(goal, RatioGoal):
        return InputError(
            f"--ratio {goal.share:g} would empty a layer or leave it below its fewest channels",
            f"{1 - least / full:.3f} at most for this network",
            "lower the ratio, --round-to or --fewest",
        )
    return InputError(
        f"--macs {goal.macs:g} would empty a layer or leave it below its fewest channels",
        f"{least:g} at least for this network ({least / full:.3f} of its {full:g})",
        "raise it, or lower --round-to or --fewest",
    )


def _cut_to_latency(pruner: Pruner, goal: LatencyGoal, run: _Run, progress: Progress | None) -> Cut:
    cut, run.latency_ms, notes = cut_to_latency(pruner, goal, progress)
    run.notes += notes
    return cut


def _take(
    run: _Run,
    pruner: Pruner,
    cut: Cut,
    settings: PruneSettings,
    data: PruneData,
    wanted: Sequence[Mapping[str, Tensor]],
) -> bool:
    """Takes a step over, unless it damages an output more than is allowed."""
    quality = probe_quality(cut.module, data, wanted)
    worst = min(quality.values(), default=float("inf"))
    if settings.stop_below_db is not None and worst < settings.stop_below_db:
        run.notes.append(
            f"stopped: the next step would leave an output at {worst:.1f} dB, below "
            f"{settings.stop_below_db:g} dB; the network before it is kept"
        )
        return False
    run.module, run.quality = cut.module, [*run.quality, quality]
    run.edits += cut.edits
    run.differences.append(cut.difference)
    run.narrowed_statistics |= dict.fromkeys(cut.narrowed_statistics)
    families = {family.name: family for family in pruner.channels.families}
    run.after |= {name: kept * families[name].width for name, kept in cut.selection.kept.items()}
    return True


def _result(run: _Run, first: Pruner) -> PruneResult:
    channels = first.channels
    macs = LayerSum(channels, count_macs)
    kept = {
        family.name: run.after.get(family.name, family.count * family.width) // family.width
        for family in channels.families
    }
    return PruneResult(
        module=run.module,
        edits=run.edits,
        widths=tuple(
            Width(family.name, family.count * family.width, kept[family.name] * family.width)
            for family in channels.families
        ),
        left_alone=channels.left_alone,
        macs=(macs.total(_all(channels)), macs.total(kept)),
        quality=tuple(run.quality),
        differences=tuple(run.differences),
        narrowed_statistics=tuple(run.narrowed_statistics),
        notes=tuple(run.notes),
        latency_ms=run.latency_ms,
    )
