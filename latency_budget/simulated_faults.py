"""Faults on a machine of our own making: each is a known truth that the verdict must find."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from latency_budget.budget import Budget, FrameBudget
from latency_budget.clock import ManualClock
from latency_budget.environment import Check, judge_environment
from latency_budget.gpu import judge_gpu
from latency_budget.measure import MeasureSettings, measure_closed, measure_paced
from latency_budget.run import Run
from latency_budget.sensors import Snapshot
from latency_budget.stage import Stage
from latency_budget.tiers import Tier
from latency_budget.verdict import Gate, Judgement, Verdict, judge

MS = 1_000_000
FRAMES = 1800
_SEED = 20261121
_BEFORE = Snapshot(0, 0, 0, 10_000, 0, {"cpu": 0.0, "io": 0.0, "memory": 0.0}, 0, 0, 0, 0, 0)
_AFTER = replace(_BEFORE, total_ticks=22_000, busy_ticks=8_000, own_ticks=7_990)
_GPU_LINE = "0, GPU, P0, 1980, 1980, 60, 200.00, {}"

Milliseconds = Callable[[int], float]


def quiet_ms(count: int = FRAMES) -> NDArray[np.float64]:
    """Returns [count] service times in ms of a healthy frame: 20 ms and little noise."""
    return np.random.default_rng(_SEED).normal(20.0, 0.2, count)


def judge_simulated(
    duration_ms: Milliseconds,
    *,
    frames: int = FRAMES,
    policy: str = "fifo",
    tier: Tier | None = None,
    budget: Budget | None = None,
) -> Judgement:
    """Measures one stage on a clock that only it moves, and judges the run.

    Args:
        duration_ms: of the frame with a number; negative moves the clock backwards.
        frames: how many.
        policy: "fifo" or "latest".
        tier: evidence; order statistics if not given.
        budget: the limits; the defaults if not given.
    """
    run = _simulate(duration_ms, frames, policy)
    environment = judge_environment(
        replace(run, snapshots=(_BEFORE, _AFTER)), [np.full(180, 5_000)]
    )
    return judge(run, budget or Budget(), tier=tier, environment=environment)


def judge_machine(
    *,
    after: Snapshot = _AFTER,
    extra: list[Check] | None = None,
    late_ns: int = 5_000,
    stops: int = 0,
) -> Judgement:
    """Judges a healthy run on a machine whose sensors say something else.

    Args:
        after: its counters after the run.
        extra: checks of further sensors.
        late_ns: how late the no-op control wakes up.
        stops: how often the process was stopped.
    """
    run = replace(_simulate(_series(quiet_ms()), FRAMES), snapshots=(_BEFORE, after), stops=stops)
    environment = judge_environment(run, [np.full(180, late_ns)], extra=extra or [])
    return judge(run, Budget(), environment=environment)


def judge_samples(latency_ms: NDArray[np.float64], **values: object) -> Judgement:
    """Judges recorded latencies; a value that is not a time becomes a defect, as when read."""
    bad = ~np.isfinite(latency_ms) | (latency_ms <= 0)
    clean = np.where(bad, 0, latency_ms * MS).astype(np.int64)
    has_impossible_times = bool(bad.any())
    defects = (f"{int(bad.sum())} impossible values",) if has_impossible_times else ()
    run = Run.from_latencies(clean, defects=defects, has_impossible_times=has_impossible_times)
    run = replace(run, **values)  # type: ignore[arg-type]
    return judge(run, Budget())


def _simulate(duration_ms: Milliseconds, frames: int, policy: str = "fifo") -> Run:
    stages, clock = _stages(duration_ms)
    settings = MeasureSettings(frames=frames, warmup_frames=0, policy=policy, clock=clock)
    return replace(measure_paced(stages, range(frames), settings), counters=None)


def _stages(duration_ms: Milliseconds) -> tuple[list[Stage], ManualClock]:
    clock = ManualClock()

    def spend(index: int) -> int:
        clock.advance_ns(round(duration_ms(index) * MS))
        return index

    return [Stage("network", spend)], clock


def _series(values: NDArray[np.float64]) -> Milliseconds:
    return lambda index: float(values[index % len(values)])


def stall_each_minute() -> Judgement:
    """One second each minute: a closed loop sees one slow frame, a camera thirty missed ones."""
    duration = _series(np.where(np.arange(FRAMES) % 1800 == 900, 1000.0, quiet_ms()))
    stages, clock = _stages(duration)
    settings = MeasureSettings(frames=FRAMES, warmup_frames=0, clock=clock)
    closed = judge(measure_closed(stages, range(FRAMES), settings), Budget())
    blind = next(gate for gate in closed.gates if gate.name == "frame P99")
    if blind.verdict is not Verdict.PASS:
        return Judgement((Gate("closed loop", Verdict.INVALID, "should not have seen it"),))
    return judge_simulated(duration)


def bursts() -> Judgement:
    """Twelve misses in a row, each 50 s: fewer than 1 % in all, and still no proof."""
    slow = np.arange(18_000) % 1500 < 12
    return judge_simulated(
        _series(np.where(slow, 33.2, quiet_ms(18_000))),
        frames=18_000,
        tier=Tier(frames=18_000, rule="cluster"),
        budget=Budget(frame=FrameBudget(max_consecutive_misses=30)),
    )


def with_throttled_gpu(reasons: int) -> Judgement:
    """A healthy run while the GPU gave a reason for lower clocks."""
    return judge_machine(extra=judge_gpu([_GPU_LINE.format(hex(reasons))] * 20, ""))


def lost_sample() -> Judgement:
    """A frame that the recording never got."""
    run = _simulate(_series(quiet_ms()), FRAMES)
    marks = run.marks_ns.copy()
    marks[700] = -1
    return judge(replace(run, marks_ns=marks), Budget())


def changed_after(**values: object) -> Snapshot:
    """Returns the counters of a quiet machine with some of them changed."""
    return replace(_AFTER, **values)  # type: ignore[arg-type]
