"""Measures frames back to back (closed loop) or at the camera's rate (paced).

Latency of a paced frame counts from its *arrival*, t0 + i / rate, computed from integers, so that a
stall is charged to every frame that had to wait behind it. The reasons are in
`docs/latency.md`.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from artifacts.errors import FramefitError, InputError
from latency_budget.clock import Clock, MonotonicClock
from latency_budget.run import Nanoseconds, Run
from latency_budget.stage import Stage, check_stages

POLICIES = ("fifo", "latest")


@dataclass(frozen=True, kw_only=True)
class MeasureSettings:
    """How to measure.

    Attributes:
        frames: frames to time after the warm-up.
        rate_hz: the camera's rate, for paced runs.
        warmup_frames: run first, in the same way, and kept apart; 90 are 3 s at 30 Hz.
        policy: "fifo" processes every frame; "latest" drops frames that a newer one overtook.
        phase_ns: shifts the arrivals, to find beats with the machine's timer ticks.
        held_frames: payloads read from an iterable before timing; they are used in a circle.
        clock: where the time comes from.
        probe: reads the machine's counters before and after the timed part.
    """

    frames: int = 1000
    rate_hz: float = 30.0
    warmup_frames: int = 90
    policy: str = "fifo"
    phase_ns: int = 0
    held_frames: int = 90
    clock: Clock = field(default_factory=MonotonicClock)
    probe: Callable[[], Any] | None = None

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
    return _measure(stages, frames, settings or MeasureSettings(), _time_closed, "closed")


def measure_paced(
    stages: list[Stage], frames: Iterable[Any], settings: MeasureSettings | None = None
) -> Run:
    """Times frames that arrive at the camera's rate; see `measure_closed` for the arguments."""
    settings = settings or MeasureSettings()
    loop = _time_fifo if settings.policy == "fifo" else _time_latest
    return _measure(stages, frames, settings, loop, settings.policy)


def arrival_offset_ns(index: int, rate: Fraction) -> int:
    """Returns when frame `index` arrives after frame 0, without accumulated rounding."""
    return index * 1_000_000_000 * rate.denominator // rate.numerator


@dataclass(frozen=True)
class _Recording:
    """The preallocated arrays of one loop."""

    arrival_ns: Nanoseconds
    marks_ns: Nanoseconds
    dropped: np.ndarray[Any, np.dtype[np.bool_]]

    @classmethod
    def allocate(cls, frames: int, stages: int) -> "_Recording":
        """Makes the arrays and touches every page of them."""
        return cls(
            np.full(frames, -1, np.int64),
            np.full((frames, stages + 1), -1, np.int64),
            np.zeros(frames, bool),
        )


_Loop = Callable[[list[Stage], Sequence[Any], MeasureSettings, _Recording], None]


def _measure(
    stages: list[Stage],
    frames: Iterable[Any],
    settings: MeasureSettings,
    loop: _Loop,
    mode: str,
) -> Run:
    names = check_stages(stages)
    payloads = _hold(frames, settings)
    warmup = _Recording.allocate(settings.warmup_frames, len(names))
    recording = _Recording.allocate(settings.frames, len(names))
    with _named_errors(names, warmup):
        loop(stages, payloads, settings, warmup)
    with _named_errors(names, recording), _quiet_garbage_collector() as collections:
        before = settings.probe() if settings.probe else None
        loop(stages, payloads, settings, recording)
        after = settings.probe() if settings.probe else None
    warmup_ns = warmup.marks_ns[:, -1] - warmup.arrival_ns
    return Run(
        mode=mode,
        rate_hz=None if mode == "closed" else settings.rate_hz,
        stage_names=names,
        arrival_ns=recording.arrival_ns,
        marks_ns=recording.marks_ns,
        dropped=recording.dropped,
        warmup_ns=warmup_ns[~warmup.dropped],
        gc_collections=len(collections),
        snapshots=(before, after) if settings.probe else None,
    )


def _hold(frames: Iterable[Any], settings: MeasureSettings) -> Sequence[Any]:
    if isinstance(frames, Sequence):
        payloads: Sequence[Any] = frames
    else:
        payloads = list(islice(frames, settings.held_frames))
    if not len(payloads):
        raise InputError("there is no frame to process", "at least one payload")
    return payloads


def _time_frame(stages: list[Stage], payload: Any, marks: Nanoseconds, clock: Clock) -> None:
    now_ns = clock.now_ns
    marks[0] = now_ns()
    for position, stage in enumerate(stages, 1):
        payload = stage.run(payload)
        marks[position] = now_ns()


def _time_closed(
    stages: list[Stage], payloads: Sequence[Any], settings: MeasureSettings, out: _Recording
) -> None:
    count = len(payloads)
    for index in range(len(out.dropped)):
        _time_frame(stages, payloads[index % count], out.marks_ns[index], settings.clock)
        out.arrival_ns[index] = out.marks_ns[index, 0]


def _time_fifo(
    stages: list[Stage], payloads: Sequence[Any], settings: MeasureSettings, out: _Recording
) -> None:
    count, rate, clock = len(payloads), _exact_rate(settings), settings.clock
    origin_ns = _first_arrival_ns(settings)
    for index in range(len(out.dropped)):
        arrival_ns = origin_ns + arrival_offset_ns(index, rate)
        out.arrival_ns[index] = arrival_ns
        clock.wait_until_ns(arrival_ns)
        _time_frame(stages, payloads[index % count], out.marks_ns[index], clock)


def _time_latest(
    stages: list[Stage], payloads: Sequence[Any], settings: MeasureSettings, out: _Recording
) -> None:
    count, rate, clock = len(payloads), _exact_rate(settings), settings.clock
    origin_ns, last = _first_arrival_ns(settings), len(out.dropped) - 1
    for index in range(last + 1):
        out.arrival_ns[index] = origin_ns + arrival_offset_ns(index, rate)
    index = 0
    while index <= last:
        clock.wait_until_ns(int(out.arrival_ns[index]))
        newest = int(np.searchsorted(out.arrival_ns, clock.now_ns(), side="right")) - 1
        out.dropped[index:newest] = True
        _time_frame(stages, payloads[newest % count], out.marks_ns[newest], clock)
        index = newest + 1


def _exact_rate(settings: MeasureSettings) -> Fraction:
    return Fraction(str(settings.rate_hz))


def _first_arrival_ns(settings: MeasureSettings) -> int:
    """The first frame arrives one period from now, so that its wait is like every other."""
    period_ns = arrival_offset_ns(1, _exact_rate(settings))
    return settings.clock.now_ns() + period_ns + settings.phase_ns


@contextmanager
def _named_errors(names: tuple[str, ...], recording: _Recording) -> Iterator[None]:
    """Says which stage raised on which frame; the marks already written tell."""
    try:
        yield
    except FramefitError:
        raise
    except Exception as error:
        begun = recording.marks_ns[:, 0] >= 0
        frame = int(np.flatnonzero(begun)[-1]) if begun.any() else 0
        stage = max(0, int((recording.marks_ns[frame] >= 0).sum()) - 1)
        raise InputError(
            f"stage '{names[min(stage, len(names) - 1)]}' raised {type(error).__name__} "
            f"on frame {frame}: {error}",
            fix="try the stage on this frame by itself",
        ) from error


@contextmanager
def _quiet_garbage_collector() -> Iterator[list[int]]:
    """Collects once, then switches collection off; yields the generations collected anyway."""
    collections: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collections.append(info["generation"])

    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.callbacks.append(note)
    try:
        yield collections
    finally:
        gc.callbacks.remove(note)
        gc.unfreeze()
        if was_enabled:
            gc.enable()
