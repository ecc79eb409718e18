"""One whole measurement in one process: cold start, controls, closed loop, both paced policies.

Nothing is printed while frames are timed: a progress bar's thread would be measured too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from latency_budget.environment import Environment, judge_environment
from latency_budget.kept_payloads import check_payloads, digest_payload
from latency_budget.measure import POLICIES, MeasureSettings, measure_closed, measure_paced
from latency_budget.run import Nanoseconds, Run
from latency_budget.samplers import Samplers
from latency_budget.sensors import read_snapshot
from latency_budget.stage import Stage
from latency_budget.statistics import percentile_ns

COLD_FRAMES = 10
PATIENT_S = 30.0
"""Frames back to back may take so long in any case, to have a P99 that can be told."""
HARNESS_FRAMES = 1000

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """How many frames the parts beside the judged one have; 0 leaves a part out.

    Attributes:
        control: of the no-op at the camera's rate, before and after.
        closed: back to back.
        other: at the camera's rate under the other policy.
    """

    control: int = 90
    closed: int = 300
    other: int = 90


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """What the first frames of a process cost; kept as figures of their own, never judged as warm.

    Attributes:
        start_ns: from the call of the process until it could begin to load, None in this process.
        load_ns: to make the workload ready, None where it was ready before.
        first_ns: [<= 10] durations of the very first frames.
    """

    start_ns: int | None = None
    load_ns: int | None = None
    first_ns: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Harness:
    """What the measuring itself costs and how exact it is.

    Attributes:
        wakeup_errors_ns: [control] how late each frame of the no-op control started.
        frame_cost_ns: median time from one no-op frame to the next, back to back.
    """

    wakeup_errors_ns: Nanoseconds = field(default_factory=lambda: np.empty(0, np.int64))
    frame_cost_ns: int | None = None


@dataclass(frozen=True)
class Experiment:
    """What one measurement gave.

    Attributes:
        closed: frames back to back.
        paced: frames at the camera's rate; the verdict is about these.
        environment: the machine's state during the paced run.
        other: frames at the camera's rate under the other policy; None where it was left out.
        cold: the cold start of each process.
        harness: the measuring's own cost.
        scheduling: what `Scheduling.apply` got; empty where nothing was asked for.
        session: what `Session.describe()` said in the measuring process.
        runtime: what ran the network there.
    """

    closed: Run
    paced: Run
    environment: Environment
    other: Run | None = None
    cold: tuple[ColdStart, ...] = ()
    harness: Harness = field(default_factory=Harness)
    scheduling: dict[str, Any] = field(default_factory=dict)
    session: dict[str, Any] | None = None
    runtime: str = ""

    @property
    def pacing_penalty(self) -> float | None:
        """Median service time at the camera's rate over the one back to back, None if too few."""
        paced = percentile_ns(np.sort(self.paced.service_ns), 0.5)
        closed = percentile_ns(np.sort(self.closed.service_ns), 0.5)
        return paced / closed if paced and closed else None

    @property
    def omission_gap_ms(self) -> float | None:
        """P99 from arrival minus P99 back to back: what a closed loop cannot see, None if few."""
        paced = percentile_ns(np.sort(self.paced.latency_ns), 0.99)
        closed = percentile_ns(np.sort(self.closed.latency_ns), 0.99)
        return (paced - closed) / 1e6 if paced and closed else None

    @property
    def process_spread(self) -> float | None:
        """(largest - smallest) / middle of the processes' median service times, None for one."""
        medians = sorted(float(np.median(part.service_ns)) for part in self.paced.split())
        return (medians[-1] - medians[0]) / medians[len(medians) // 2] if medians[1:] else None


def run_experiment(
    stages: list[Stage],
    frames: Iterable[Any],
    settings: MeasureSettings,
    *,
    is_whole_frame: bool = True,
    parts: Parts | None = None,
    progress: Progress | None = None,
) -> Experiment:
    """Measures a frame in closed loop and at the camera's rate, between two no-op controls.

    Args:
        stages: the frame's stages in order.
        frames: payloads for the first stage, used in a circle.
        settings: how to measure; `frames` counts the paced ones.
        is_whole_frame: False where the stages are a part of the frame.
        parts: frames of the other parts.
        progress: called with (what, done, total) between the parts.
    """
    note = progress or (lambda what, done, total: None)
    parts = parts or Parts()
    held: Sequence[Any] = (
        frames if isinstance(frames, Sequence) else list(islice(frames, settings.held_frames))
    )
    plain = replace(settings, stop=None, probe=None)
    note("first frames and no-op control", 0, 5)
    first = measure_closed(stages, held, replace(plain, frames=COLD_FRAMES, warmup_frames=0))
    payloads = _digest_first(held)
    controls = [_measure_control(plain, parts.control)]
    note("closed loop", 1, 5)
    back_to_back = _count_in_time(parts.closed, first, settings.rate_hz)
    warmup = min(settings.warmup_frames, back_to_back)
    closed = measure_closed(
        stages,
        held,
        replace(plain, warmup_frames=warmup, frames=max(1, min(settings.frames, back_to_back))),
    )
    changed = check_payloads(payloads, _digest_first(held))
    note(f"{settings.frames} frames at {settings.rate_hz:g} Hz", 2, 5)
    with Samplers(skip_s=settings.warmup_frames / settings.rate_hz) as samplers:
        paced = measure_paced(
            stages, held, replace(settings, probe=settings.probe or read_snapshot)
        )
    note("the other policy", 3, 5)
    other = _measure_other(stages, held, plain, parts.other)
    note("no-op control", 4, 5)
    controls.append(_measure_control(plain, parts.control))
    note("measured", 5, 5)
    wakeups = [control.start_ns - control.arrival_ns for control in controls if control.count]
    return Experiment(
        replace(closed, is_whole_frame=is_whole_frame),
        replace(paced, is_whole_frame=is_whole_frame),
        judge_environment(paced, wakeups, extra=[*samplers.checks, *changed]),
        other=other,
        cold=(ColdStart(first_ns=tuple(first.service_ns.tolist())),),
        harness=Harness(
            wakeup_errors_ns=np.concatenate(wakeups) if wakeups else np.empty(0, np.int64),
            frame_cost_ns=measure_frame_cost(plain),
        ),
    )


def _digest_first(held: Sequence[Any]) -> list[tuple[int, ...]]:
    return [digest_payload(held[index]) for index in range(min(COLD_FRAMES, len(held)))]


def measure_frame_cost(settings: MeasureSettings) -> int:
    """Returns the median time in ns from one no-op frame to the next: the harness's own cost."""
    brief = replace(settings, frames=HARNESS_FRAMES, warmup_frames=HARNESS_FRAMES, pulse=None)
    run = measure_closed([_NO_OP], [None], brief)
    return int(np.median(np.diff(run.start_ns)))


def _count_in_time(frames: int, first: Run, rate_hz: float) -> int:
    """Returns how many frames back to back last no longer than `frames` at the camera's rate.

    Or than `PATIENT_S`. Frames of seconds would else keep a check for an hour before it may say
    that they are too slow.
    """
    longest_s = max(frames / rate_hz, PATIENT_S)
    typical_s = float(np.median(first.service_ns)) / 1e9
    if frames * typical_s <= longest_s:
        return frames
    return min(frames, max(COLD_FRAMES, int(longest_s / typical_s)))


_NO_OP = Stage("no-op", lambda payload: payload)


def _measure_control(settings: MeasureSettings, frames: int) -> Run:
    if not frames:
        return Run.from_latencies(np.empty(0, np.int64))
    return measure_paced(
        [_NO_OP],
        [None],
        replace(settings, frames=frames, warmup_frames=3, policy="fifo", pulse=None),
    )


def _measure_other(
    stages: list[Stage], held: Sequence[Any], settings: MeasureSettings, frames: int
) -> Run | None:
    if not frames:
        return None
    policy = POLICIES[1 - POLICIES.index(settings.policy)]
    warmup = min(settings.warmup_frames, frames)
    return measure_paced(
        stages, held, replace(settings, frames=frames, warmup_frames=warmup, policy=policy)
    )
