"""A run: the raw times of every frame, as measured or as recorded elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from latency_budget.timed_loop import COUNTERS

DROPPED_NS = int(np.iinfo(np.int64).max)

Nanoseconds = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Run:
    """The times of n frames through k stages, in integer nanoseconds of one monotonic clock.

    Attributes:
        mode: "closed" (a frame starts when the last one ended), "fifo" (paced, every frame is
            processed), "latest" (paced, the newest frame only), or "recorded".
        rate_hz: the camera's rate of a paced run.
        stage_names: the k stages in order; empty where only whole frames were recorded.
        arrival_ns: [n] when each frame was due (paced) or started (closed).
        marks_ns: [n, m] start of the first stage, end of each stage; m = k + 1, at least 2.
        dropped: [n] True where the frame was never processed; its marks are meaningless.
        warmup_ns: [w] latencies of the warm-up frames, cold ones first; kept, never judged.
        counters: [n, 5] how much the timed thread's `timed_loop.COUNTERS` grew from the end of the
            frame before to the end of each, its wait included; -1 where unknown, None where they
            were not recorded.
        collections_ns: start and end of each Python garbage collection in the timed part.
        stops: how often the process was stopped and continued in the timed part.
        origins: number of the first frame of each process, where several were joined.
        is_whole_frame: False where only a part of the frame was measured (a network alone).
        snapshots: the machine's counters before and after the timed part, where they were read.
        defects: what is wrong with the samples themselves, found while reading them.
        has_impossible_times: the defects name values that are no times, and 0 stands for these.
        rounding_ns: by how much the stages may take longer than their frame, as they were recorded
            with so few digits.
        is_numbered: a frame that is missing would have been noticed; not so for recorded times
            without a counter and without dropped frames.
        is_unit_known: whoever wrote the times measured them in nanoseconds; not so for columns
            whose names people choose.
    """

    mode: str
    rate_hz: float | None
    stage_names: tuple[str, ...]
    arrival_ns: Nanoseconds
    marks_ns: Nanoseconds
    dropped: NDArray[np.bool_]
    warmup_ns: Nanoseconds
    counters: NDArray[np.int64] | None = None
    collections_ns: tuple[tuple[int, int], ...] = ()
    stops: int = 0
    origins: tuple[int, ...] = (0,)
    is_whole_frame: bool = True
    snapshots: tuple[Any, Any] | None = None
    defects: tuple[str, ...] = ()
    has_impossible_times: bool = False
    rounding_ns: int = 0
    is_numbered: bool = True
    is_unit_known: bool = False

    @classmethod
    def from_latencies(
        cls,
        latency_ns: Nanoseconds,
        *,
        stages_ns: dict[str, Nanoseconds] | None = None,
        dropped: NDArray[np.bool_] | None = None,
        rate_hz: float | None = None,
        defects: tuple[str, ...] = (),
        has_impossible_times: bool = False,
        rounding_ns: int = 0,
        is_numbered: bool = True,
    ) -> Self:
        """Builds a run from recorded latencies.

        Args:
            latency_ns: [n] from the frame's arrival to its result.
            stages_ns: per stage [n] durations; what they leave of the latency is the wait before
                the first stage.
            dropped: [n] frames that were never processed.
            rate_hz: the camera's rate, for the timeline; 30 where unknown.
            defects: what is wrong with the samples.
            has_impossible_times: see `Run`.
            rounding_ns: see `Run`.
            is_numbered: see `Run`.
        """
        latency_ns = np.asarray(latency_ns, np.int64)
        durations = [np.asarray(values, np.int64) for values in (stages_ns or {}).values()]
        period_ns = round(1e9 / (rate_hz or 30.0))
        arrival_ns = np.arange(1, len(latency_ns) + 1, dtype=np.int64) * period_ns
        done_ns = arrival_ns + latency_ns
        if not durations:
            marks_ns = np.stack([arrival_ns, done_ns], axis=1)
        else:
            ends = np.cumsum(np.stack(durations[::-1], axis=1), axis=1)[:, ::-1]
            marks_ns = np.concatenate([done_ns[:, None] - ends, done_ns[:, None]], axis=1)
        return cls(
            mode="recorded",
            rate_hz=rate_hz,
            stage_names=tuple(stages_ns or ()),
            arrival_ns=arrival_ns,
            marks_ns=marks_ns,
            dropped=np.zeros(len(latency_ns), bool) if dropped is None else dropped,
            warmup_ns=np.empty(0, np.int64),
            defects=defects,
            has_impossible_times=has_impossible_times,
            rounding_ns=rounding_ns,
            is_numbered=is_numbered,
        )

    @classmethod
    def join(cls, runs: Sequence["Run"]) -> "Run":
        """Returns the frames of several processes as one run, in the order of time.

        Snapshots are dropped: each process was judged by its own.
        """
        if len(runs) == 1:
            return runs[0]
        first = runs[0]
        counts = [run.count for run in runs]
        return cls(
            mode=first.mode,
            rate_hz=first.rate_hz,
            stage_names=first.stage_names,
            arrival_ns=np.concatenate([run.arrival_ns for run in runs]),
            marks_ns=np.concatenate([run.marks_ns for run in runs]),
            dropped=np.concatenate([run.dropped for run in runs]),
            warmup_ns=first.warmup_ns,
            counters=_join_or_none([run.counters for run in runs]),
            collections_ns=tuple(event for run in runs for event in run.collections_ns),
            stops=sum(run.stops for run in runs),
            origins=tuple(int(sum(counts[:index])) for index in range(len(runs))),
            is_whole_frame=first.is_whole_frame,
            defects=tuple(dict.fromkeys(defect for run in runs for defect in run.defects)),
            has_impossible_times=any(run.has_impossible_times for run in runs),
        )

    @property
    def gc_collections(self) -> int:
        """Python garbage collections that happened in the timed part."""
        return len(self.collections_ns)

    def split(self) -> list["Run"]:
        """Returns the frames of each process, as far as a verdict needs them."""
        ends = (*self.origins[1:], self.count)
        return [self._part(first, last) for first, last in zip(self.origins, ends, strict=True)]

    def _part(self, first: int, last: int) -> "Run":
        return replace(
            self,
            arrival_ns=self.arrival_ns[first:last],
            marks_ns=self.marks_ns[first:last],
            dropped=self.dropped[first:last],
            counters=None if self.counters is None else self.counters[first:last],
            origins=(0,),
        )

    def counts_of(self, name: str) -> NDArray[np.int64] | None:
        """Returns [n] one column of `counters` by its name, None where it is unknown."""
        if self.counters is None:
            return None
        column: NDArray[np.int64] = self.counters[:, COUNTERS.index(name)]
        return None if (column < 0).any() else column

    @property
    def count(self) -> int:
        """Number of frames, dropped ones included."""
        return len(self.arrival_ns)

    @property
    def start_ns(self) -> Nanoseconds:
        """[n] when the first stage began."""
        return self.marks_ns[:, 0]

    @property
    def done_ns(self) -> Nanoseconds:
        """[n] when the last stage ended."""
        return self.marks_ns[:, -1]

    @property
    def latency_ns(self) -> Nanoseconds:
        """[n] from arrival to result; `DROPPED_NS` for a dropped frame, so it sorts last."""
        return np.where(self.dropped, DROPPED_NS, self.done_ns - self.arrival_ns)

    @property
    def service_ns(self) -> Nanoseconds:
        """[processed] from the start of the first stage to the result."""
        return (self.done_ns - self.start_ns)[~self.dropped]

    @property
    def queue_ns(self) -> Nanoseconds:
        """[processed] from arrival to the start of the first stage."""
        return (self.start_ns - self.arrival_ns)[~self.dropped]

    def stage_ns(self, name: str) -> Nanoseconds:
        """Returns [processed] the durations of one stage."""
        position = self.stage_names.index(name)
        durations = self.marks_ns[:, position + 1] - self.marks_ns[:, position]
        return durations[~self.dropped]

    def find_misses(self, deadline_ns: int) -> NDArray[np.bool_]:
        """Returns [n] True where the frame was dropped or took longer than the deadline."""
        return self.latency_ns > deadline_ns

    @property
    def was_idle(self) -> NDArray[np.bool_]:
        """[processed] True where the frame before was done when this one arrived."""
        done = self.done_ns[~self.dropped]
        arrival = self.arrival_ns[~self.dropped]
        was_idle = np.ones(len(done), bool)
        was_idle[1:] = done[:-1] < arrival[1:]
        return was_idle

    def wakeup_errors_ns(self) -> Nanoseconds:
        """Returns how late frames started that found the pipeline idle: the machine's own error."""
        return self.queue_ns[self.was_idle]

    def find_defects(self) -> tuple[str, ...]:
        """Returns what makes the samples themselves unbelievable: the clock, missing frames."""
        found = list(self.defects)
        if not self.count:
            found.append("no frame was recorded")
        processed = ~self.dropped
        lost = int((self.marks_ns[processed] < 0).any(axis=1).sum())
        if lost:
            found.append(f"{lost} frames were never recorded")
        steps = np.diff(self.marks_ns[processed], axis=1)
        if (steps < 0).any():
            found.append(f"the clock went backwards in {int((steps < 0).any(axis=1).sum())} frames")
        latency = (self.done_ns - self.arrival_ns)[processed]
        is_noted = self.has_impossible_times or (steps < 0).any()
        if (latency <= 0).any() and not is_noted:
            found.append(f"{int((latency <= 0).sum())} frames have a latency of zero or less")
        early = (self.start_ns - self.arrival_ns)[processed] < -self.rounding_ns
        if early.any() and self.stage_names:
            found.append(f"in {int(early.sum())} frames the stages take longer than the frame")
        if (np.diff(self.arrival_ns) <= 0).any():
            found.append("the frames' arrivals do not increase")
        return tuple(dict.fromkeys(found))


def _join_or_none(parts: Sequence[NDArray[np.int64] | None]) -> NDArray[np.int64] | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None
