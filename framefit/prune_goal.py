"""Prunes to what a user asks for, and measures that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from artifacts.errors import InputError
from framefit.exported_clock import ExportedClock
from framefit.exported_module import Exporter
from framefit.layer_timing import LayerTimes
from framefit.network_clock import RUNTIMES
from framefit.thread_choice import ProofRun, choose_threads
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor, nn

    from compress.prune.api import LatencyGoal, MacsGoal, PruneData, PruneResult, RatioGoal
    from compress.prune.settings import PruneSettings

Progress = Callable[[str, int, int], None]
PRECISIONS = ("float", "int8")
TIMED_SAMPLES = 2
"""For the ranges of networks that are timed in INT8."""


@dataclass(frozen=True, kw_only=True)
class PruneGoal:
    """How far to prune; exactly one is given.

    Attributes:
        target_ms: lower quartile of the latency on `runtime`, see `NetworkClock`.
        speed_up: how many times as fast as the network itself on `runtime`.
        ratio: share of the removable channels.
        macs: multiplications of one inference, or up to 1 a share of them.
        runtime: where the latency counts.
        precision: "float" or "int8": what the latency is that of. In INT8 the network and the
            candidates are quantized before they are timed, and so are the layers of the table.
    """

    target_ms: float | None = None
    speed_up: float | None = None
    ratio: float | None = None
    macs: float | None = None
    runtime: str = "openvino"
    precision: str = "float"

    def __post_init__(self) -> None:
        goals = (self.target_ms, self.speed_up, self.ratio, self.macs)
        given = sum(value is not None for value in goals)
        if given != 1:
            raise InputError(
                f"{given} goals were given", "one of --target-ms, --speed-up, --ratio and --macs"
            )
        if self.precision not in PRECISIONS:
            raise InputError(f"--precision is '{self.precision}'", " or ".join(PRECISIONS))
        is_timed = self.target_ms is not None or self.speed_up is not None
        if self.precision == "int8" and not is_timed:
            raise InputError("--precision int8 was given without a latency", "--target-ms")
        if is_timed and self.runtime not in RUNTIMES:
            raise InputError(f"--runtime is '{self.runtime}'", " or ".join(RUNTIMES))


def check_values(goal: PruneGoal) -> None:
    """Refuses a goal out of range before the network is loaded.

    Raises:
        InputError: it is.
    """
    from compress.prune.api import MacsGoal, RatioGoal
    from compress.prune.latency import check_latency

    if goal.ratio is not None:
        RatioGoal(goal.ratio)
    elif goal.macs is not None:
        MacsGoal(goal.macs)
    else:
        check_latency(goal.target_ms, goal.speed_up)


def prune_to_goal(
    module: "nn.Module",
    inputs: "tuple[Tensor, ...]",
    goal: PruneGoal,
    settings: "PruneSettings",
    data: "PruneData",
    shapes: Mapping[str, tuple[int, ...]],
    progress: Progress | None,
) -> "PruneResult":
    """Prunes a network with as many threads as it is proven with fastest.

    Args:
        module: see `prune_module`.
        inputs: see there.
        goal: what the user asks for.
        settings: how, but for the threads.
        data: see there.
        shapes: of the inputs, by name.
        progress: is told (what, done, total).

    Raises:
        InputError: the goal cannot be reached, or the network cannot be pruned.
    """
    from artifacts.module_copy import copy_module
    from artifacts.raw_outputs import require_raw_outputs
    from compress.prune.api import prune_module
    from compress.prune.usable_weights import require_full_precision
    from compress.train.threads import use_threads

    require_full_precision(module)
    require_raw_outputs(copy_module(module), inputs)
    threads = choose_threads(ProofRun(module, inputs))
    with use_threads(threads):
        samples = [*data.calibration, inputs][:TIMED_SAMPLES]
        wanted = _make_goal(goal, module, shapes, samples, progress)
        settings = replace(settings, threads=threads)
        return prune_module(module, inputs, wanted, settings, data, progress)


def _make_goal(
    goal: PruneGoal,
    module: "nn.Module",
    shapes: Mapping[str, tuple[int, ...]],
    samples: "Sequence[tuple[Tensor, ...]]",
    progress: Progress | None,
) -> "RatioGoal | MacsGoal | LatencyGoal":
    """Returns a goal that can be measured; for a latency, layers are timed first.

    Args:
        goal: what the user asks for.
        module: the network.
        shapes: of its inputs, by name.
        samples: its arguments, for the ranges of INT8; at least one.
        progress: is told (what, done, total).

    Raises:
        InputError: the network is as fast already.
    """
    from compress.prune.analysis.api import find_channels
    from compress.prune.api import LatencyGoal, MacsGoal, RatioGoal

    if goal.ratio is not None:
        return RatioGoal(goal.ratio)
    if goal.macs is not None:
        return MacsGoal(goal.macs)
    is_int8 = goal.precision == "int8"
    times = LayerTimes(goal.runtime, Workspace().find_state(), is_int8)
    feeds = [
        {name: value.numpy() for name, value in zip(shapes, sample, strict=True)}
        for sample in samples
    ]
    clock = ExportedClock(module, Exporter(shapes, goal.runtime, feeds if is_int8 else ()))
    latency = LatencyGoal(
        measure=clock,
        layer_time=times,
        target_ms=goal.target_ms,
        speed_up=goal.speed_up,
    )
    if goal.target_ms is not None and min(clock(module)) <= goal.target_ms:
        latency.require_faster(max(clock(module)))
    trace = find_channels(module, samples[-1]).trace
    times.build(trace.needed_layers, progress)
    return latency
