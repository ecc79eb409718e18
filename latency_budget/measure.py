"""Measures frames back to back (closed loop) or at the camera's rate (paced).

Latency of a paced frame counts from its *arrival*, t0 + i / rate, computed from integers, so that a
stall is charged to every frame that had to wait behind it. The reasons are in
`docs/latency.md`.
"""

import gc
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from artifacts.errors import FramefitError, InputError, first_line
from latency_budget.clock import Clock, MonotonicClock
from latency_budget.pulse import Pulse
from latency_budget.run import DROPPED_NS, Nanoseconds, Run
from latency_budget.stage import Stage, check_stages, refuse_late_results
from latency_budget.timed_loop import LOOPS, Recording, TimedLoop, arrival_offset_ns

POLICIES = ("fifo", "latest")
LOOK_EVERY_FRAMES = 30


@dataclass(frozen=True, kw_only=True)
class MeasureSettings:
    """How to measure.

    Attributes:
        frames: frames to time after the warm-up.
        rate_hz: the camera's rate, for paced runs.
        warmup_frames: run first, in the same way, and kept apart; 90 are 3 s at 30 Hz. What the
            stages return is looked at in these frames only; in all of them where there are none.
        policy: "fifo" processes every frame; "latest" drops frames that a newer one overtook.
        phase_ns: shifts the arrivals, to find beats with the machine's timer ticks.
        held_frames: payloads read from an iterable before timing; they are used in a circle.
        clock: where the time comes from.
        stop: asked every 30 frames with the latencies so far; True ends the run (a sequential
            test has decided).
        probe: reads the machine's counters before and after the timed part.
        pulse: told where the loop stands, for a process that watches; None tells nobody.
    """

    frames: int = 1000
    rate_hz: float = 30.0
    warmup_frames: int = 90
    policy: str = "fifo"
    phase_ns: int = 0
    held_frames: int = 90
    clock: Clock = field(default_factory=MonotonicClock)
    stop: Callable[[Nanoseconds], bool] | None = None
    probe: Callable[[], Any] | None = None
    pulse: Pulse | None = None

    def __post_init__(self) -> None:
        if self.frames < 1 or self.warmup_frames < 0 or self.held_frames < 1:
            raise InputError(
                f"frames {self.frames}, warm-up {self.warmup_frames}, held {self.held_frames}",
                "at least 1 frame, 1 held frame and no negative number",
            )
        if not np.isfinite(self.rate_hz) or self.rate_hz <= 0:
            raise InputError(f"rate_hz is {self.rate_hz}", "a rate above 0 in frames per second")
        if self.policy not in POLICIES:
            raise InputError(f"policy is '{self.policy}'", " or ".join(POLICIES))


def measure_closed(
    stages: list[Stage], frames: Iterable[Any], settings: MeasureSettings | None = None
) -> Run:
    """Times frames back to back: a frame starts when the one before ended.

    This shows what the machine can do at most. It cannot show what a camera would see: a stall
    delays one frame here, and every frame that arrives during it in `measure_paced`.

    Args:
        stages: the frame's stages in order.
        frames: payloads for the first stage, used in a circle.
        settings: how to measure; rate and policy are not used.

    Raises:
        InputError: no payload, or a stage raised an error.
    """
    return _measure(stages, frames, settings or MeasureSettings(), "closed")


def measure_paced(
    stages: list[Stage], frames: Iterable[Any], settings: MeasureSettings | None = None
) -> Run:
    """Times frames that arrive at the camera's rate; see `measure_closed` for the arguments."""
    settings = settings or MeasureSettings()
    return _measure(stages, frames, settings, settings.policy)


def _measure(
    stages: list[Stage], frames: Iterable[Any], settings: MeasureSettings, mode: str
) -> Run:
    names = check_stages(stages)
    payloads = _hold(frames, settings)
    warmup = Recording.allocate(settings.warmup_frames, len(names))
    recording = Recording.allocate(settings.frames, len(names))
    watched = refuse_late_results(stages)
    with _named_errors(names, warmup):
        _run_loop(watched, payloads, replace(settings, stop=None), mode, warmup)
    if not settings.warmup_frames:
        stages = watched
    with (
        _named_errors(names, recording),
        _count_stops() as stops,
        _quiet_garbage_collector(settings.clock) as collections,
    ):
        before = settings.probe() if settings.probe else None
        done = _run_loop(stages, payloads, settings, mode, recording)
        after = settings.probe() if settings.probe else None
    recording = recording.first(done)
    warmup_ns = warmup.marks_ns[:, -1] - warmup.arrival_ns
    return Run(
        mode=mode,
        rate_hz=None if mode == "closed" else settings.rate_hz,
        stage_names=names,
        arrival_ns=recording.arrival_ns,
        marks_ns=recording.marks_ns,
        dropped=recording.dropped,
        warmup_ns=warmup_ns[~warmup.dropped],
        counters=recording.grown_counters(),
        collections_ns=tuple(collections),
        stops=len(stops),
        snapshots=(before, after) if settings.probe else None,
    )


def _run_loop(
    stages: list[Stage],
    payloads: Sequence[Any],
    settings: MeasureSettings,
    mode: str,
    out: Recording,
) -> int:
    """Runs one loop, in parts where the settings may stop it early; returns the frames done."""
    loop = TimedLoop(stages, payloads, settings.clock, out, settings.pulse)
    count, run = len(out.dropped), LOOPS[mode]
    if mode != "closed":
        loop.schedule(_first_arrival_ns(settings), _exact_rate(settings))
    step = LOOK_EVERY_FRAMES if settings.stop else max(1, count)
    done = 0
    try:
        while done < count:
            done = min(count, run(loop, done, min(count, done + step)))
            if settings.stop and settings.stop(_latencies(out, done)):
                break
    finally:
        loop.close()
    return done


def _latencies(out: Recording, done: int) -> Nanoseconds:
    latency: Nanoseconds = np.where(
        out.dropped[:done], DROPPED_NS, out.marks_ns[:done, -1] - out.arrival_ns[:done]
    )
    return latency


def _hold(frames: Iterable[Any], settings: MeasureSettings) -> Sequence[Any]:
    if isinstance(frames, Sequence):
        payloads: Sequence[Any] = frames
    else:
        payloads = list(islice(frames, settings.held_frames))
    if not len(payloads):
        raise InputError("there is no frame to process", "at least one payload")
    return payloads


def _exact_rate(settings: MeasureSettings) -> Fraction:
    return Fraction(str(settings.rate_hz))


def _first_arrival_ns(settings: MeasureSettings) -> int:
    """The first frame arrives one period from now, so that its wait is like every other."""
    period_ns = arrival_offset_ns(1, _exact_rate(settings))
    return settings.clock.now_ns() + period_ns + settings.phase_ns


@contextmanager
def _named_errors(names: tuple[str, ...], recording: Recording) -> Iterator[None]:
    """Says which stage raised on which frame; the marks already written tell."""
    try:
        yield
    except FramefitError:
        raise
    except (Exception, SystemExit) as error:
        begun = recording.marks_ns[:, 0] >= 0
        frame = int(np.flatnonzero(begun)[-1]) if begun.any() else 0
        stage = max(0, int((recording.marks_ns[frame] >= 0).sum()) - 1)
        raise InputError(
            f"stage '{names[min(stage, len(names) - 1)]}' raised {type(error).__name__} "
            f"on frame {frame}: {first_line(error)}",
            fix="try the stage on this frame by itself",
        ) from error


@contextmanager
def _count_stops() -> Iterator[list[int]]:
    """Notes each time the process was stopped and continued (SIGSTOP, a debugger, a suspend)."""
    stops: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield stops
        return
    before = signal.signal(signal.SIGCONT, lambda number, frame: stops.append(number))
    try:
        yield stops
    finally:
        signal.signal(signal.SIGCONT, before)


@contextmanager
def _quiet_garbage_collector(clock: Clock) -> Iterator[list[tuple[int, int]]]:
    """Collects once, then switches collection off; yields when it ran anyway, start and end.

    Objects that a caller has frozen are not looked at, and stay so.
    """
    collections: list[tuple[int, int]] = []
    begun = [0]

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun[0] = clock.now_ns()
        else:
            collections.append((begun[0], clock.now_ns()))

    was_enabled, is_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.collect()
    if not is_frozen:
        gc.freeze()
    gc.disable()
    gc.callbacks.append(note)
    try:
        yield collections
    finally:
        gc.callbacks.remove(note)
        if not is_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()
