"""One whole measurement: control, closed loop, paced loop, control again, the machine's state.

Nothing is printed while frames are timed: a progress bar's thread would be measured too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from latency_budget.environment import Environment, judge_environment
from latency_budget.measure import MeasureSettings, measure_closed, measure_paced
from latency_budget.run import Nanoseconds, Run
from latency_budget.sensors import read_snapshot
from latency_budget.stage import Stage
from latency_budget.statistics import percentile_ns

CONTROL_FRAMES = 90
CLOSED_FRAMES = 300

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Experiment:
    """What one measurement gave.

    Attributes:
        closed: frames back to back.
        paced: frames at the camera's rate; the verdict is about these.
        environment: the machine's state during the paced run.
    """

    closed: Run
    paced: Run
    environment: Environment

    @property
    def pacing_penalty(self) -> float | None:
        """Median service time at the camera's rate over the one back to back, None if too few."""
        paced = percentile_ns(_sorted_service(self.paced), 0.5)
        closed = percentile_ns(_sorted_service(self.closed), 0.5)
        return paced / closed if paced and closed else None

    @property
    def omission_gap_ms(self) -> float | None:
        """P99 from arrival minus P99 back to back: what a closed loop cannot see, None if few."""
        paced = percentile_ns(np.sort(self.paced.latency_ns), 0.99)
        closed = percentile_ns(np.sort(self.closed.latency_ns), 0.99)
        return (paced - closed) / 1e6 if paced and closed else None


def run_experiment(
    stages: list[Stage],
    frames: Iterable[Any],
    settings: MeasureSettings,
    *,
    is_whole_frame: bool = True,
    control_frames: int = CONTROL_FRAMES,
    progress: Progress | None = None,
) -> Experiment:
    """Measures a frame in closed loop and at the camera's rate, between two no-op controls.

    Args:
        stages: the frame's stages in order.
        frames: payloads for the first stage, used in a circle.
        settings: how to measure; `frames` counts the paced ones.
        is_whole_frame: False where the stages are a part of the frame.
        control_frames: of each control; 0 leaves them out.
        progress: called with (what, done, total) between the parts.
    """
    note = progress or (lambda what, done, total: None)
    held: Sequence[Any] = (
        frames if isinstance(frames, Sequence) else list(islice(frames, settings.held_frames))
    )
    note("no-op control", 0, 4)
    controls = [_measure_control(settings, control_frames)]
    note("closed loop", 1, 4)
    brief = replace(settings, frames=min(settings.frames, CLOSED_FRAMES))
    closed = measure_closed(stages, held, brief)
    note(f"{settings.frames} frames at {settings.rate_hz:g} Hz", 2, 4)
    paced = measure_paced(stages, held, replace(settings, probe=settings.probe or read_snapshot))
    note("no-op control", 3, 4)
    controls.append(_measure_control(settings, control_frames))
    note("measured", 4, 4)
    closed = replace(closed, is_whole_frame=is_whole_frame)
    paced = replace(paced, is_whole_frame=is_whole_frame)
    return Experiment(closed, paced, judge_environment(paced, controls))


def _measure_control(settings: MeasureSettings, frames: int) -> Nanoseconds:
    if not frames:
        return np.empty(0, np.int64)
    control = replace(settings, frames=frames, warmup_frames=3, policy="fifo", probe=None)
    run = measure_paced([Stage("no-op", lambda payload: payload)], [None], control)
    return run.start_ns - run.arrival_ns


def _sorted_service(run: Run) -> Nanoseconds:
    return np.sort((run.done_ns - run.start_ns)[~run.dropped])
