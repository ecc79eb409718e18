"""The loops that are timed. They write into buffers made before, collect no garbage, print nothing.

Integers and views that a frame needs come and go; nothing that a loop makes outlives its frame
(`tests/latency_budget/test_timed_loop.py` holds that). The thread's own counters are read after a
frame's last mark, so their cost falls between frames.
"""

import os
import resource
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latency_budget.clock import Clock
from latency_budget.priority import is_realtime
from latency_budget.pulse import OUTSIDE, Pulse
from latency_budget.stage import Stage

Nanoseconds = NDArray[np.int64]

COUNTERS = ("minor_faults", "major_faults", "voluntary_switches", "involuntary_switches", "wait_ns")
_SCHEDSTAT = "/proc/thread-self/schedstat"


@dataclass(frozen=True)
class Recording:
    """The buffers of one loop over n frames through k stages; every page is touched beforehand.

    Attributes:
        arrival_ns: [n] when each frame is due.
        marks_ns: [n, k + 1] start of the first stage, end of each stage.
        dropped: [n] True where a frame was overtaken.
        counters: [n + 1, 5] the thread's `COUNTERS` before the first frame and after each; -1
            where the machine does not tell.
    """

    arrival_ns: Nanoseconds
    marks_ns: Nanoseconds
    dropped: NDArray[np.bool_]
    counters: Nanoseconds

    @classmethod
    def allocate(cls, frames: int, stages: int) -> "Recording":
        """Makes the buffers and touches every page of them."""
        return cls(
            np.full(frames, -1, np.int64),
            np.full((frames, stages + 1), -1, np.int64),
            np.zeros(frames, bool),
            np.full((frames + 1, len(COUNTERS)), -1, np.int64),
        )

    def first(self, frames: int) -> "Recording":
        """Returns the recording of the first frames only."""
        return Recording(
            self.arrival_ns[:frames],
            self.marks_ns[:frames],
            self.dropped[:frames],
            self.counters[: frames + 1],
        )

    def grown_counters(self) -> NDArray[np.int64]:
        """Returns [n, 5] what each frame added to the counters, -1 where they are unknown."""
        grown: NDArray[np.int64] = np.diff(self.counters, axis=0)
        return np.where((self.counters < 0).any(axis=0), -1, grown)


class CounterReader:
    """Reads the calling thread's counters into a row, a few microseconds each time."""

    def __init__(self) -> None:
        self._who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
        try:
            self._file: int | None = os.open(_SCHEDSTAT, os.O_RDONLY)
        except OSError:
            self._file = None

    def read_into(self, row: Any, base: int) -> None:
        """Writes the `COUNTERS` to `row[base:base + 5]`."""
        usage = resource.getrusage(self._who)
        row[base] = usage.ru_minflt
        row[base + 1] = usage.ru_majflt
        row[base + 2] = usage.ru_nvcsw
        row[base + 3] = usage.ru_nivcsw
        if self._file is not None:
            row[base + 4] = int(os.pread(self._file, 64, 0).split()[1])

    def close(self) -> None:
        """Closes the file that it holds."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


REST_DIVISOR = 12
"""A rest after a frame of realtime priority is this part of the frame."""


class TimedLoop:
    """Runs frames through stages and writes down when each stage ended.

    Args:
        stages: the frame's stages in order.
        payloads: of the first stage, used in a circle.
        clock: where the time comes from.
        out: the buffers to fill.
        pulse: told where the loop stands, see `pulse.Pulse`; None tells nobody.
    """

    def __init__(
        self,
        stages: list[Stage],
        payloads: Sequence[Any],
        clock: Clock,
        out: Recording,
        pulse: Pulse | None = None,
    ) -> None:
        self._runs = tuple(stage.run for stage in stages)
        self._payloads = payloads
        self._clock = clock
        self._count = len(out.dropped)
        self._arrival = _view(out.arrival_ns)
        self._marks = _view(out.marks_ns)
        self._dropped = _view(out.dropped)
        self._counters = _view(out.counters)
        self._pulse: Any = pulse.cell if pulse else memoryview(bytearray(8)).cast("q")
        self._reader = CounterReader()
        self._reader.read_into(self._counters, 0)

    def schedule(self, origin_ns: int, rate: Fraction) -> None:
        """Writes down every arrival: origin + i / rate, without accumulated rounding."""
        for index in range(self._count):
            self._arrival[index] = origin_ns + arrival_offset_ns(index, rate)

    def run_closed(self, first: int, last: int) -> int:
        """Runs frames `first` to `last - 1` back to back; returns the next frame's number.

        With realtime priority each frame is followed by a rest of a twelfth of it: Linux stops a
        realtime process for 50 ms that leaves less than 5 % of a second to others, and that stop
        would be charged to some frame.
        """
        width, is_resting, marks = len(self._runs) + 1, is_realtime(), self._marks
        for index in range(first, last):
            self._run_frame(index, width)
            start = index * width
            self._arrival[index] = marks[start]
            if is_resting:
                self._clock.rest_ns((marks[start + width - 1] - marks[start]) // REST_DIVISOR)
        return last

    def run_fifo(self, first: int, last: int) -> int:
        """Runs every frame, each when it has arrived and the one before is done."""
        width, wait = len(self._runs) + 1, self._clock.wait_until_ns
        for index in range(first, last):
            wait(self._arrival[index])
            self._run_frame(index, width)
        return last

    def run_latest(self, first: int, last: int) -> int:
        """Runs the newest frame that has arrived; those that it overtook are dropped."""
        width, wait, now_ns = len(self._runs) + 1, self._clock.wait_until_ns, self._clock.now_ns
        index = first
        while index < last:
            wait(self._arrival[index])
            newest = max(index, bisect_right(self._arrival, now_ns(), index) - 1)
            while index < newest:
                self._dropped[index] = True
                self._skip_counters(index)
                index += 1
            self._run_frame(newest, width)
            index = newest + 1
        return index

    def close(self) -> None:
        """Frees what the loop holds besides the buffers."""
        self._pulse[0] = OUTSIDE
        self._reader.close()

    def _run_frame(self, index: int, width: int) -> None:
        marks, now_ns, pulse = self._marks, self._clock.now_ns, self._pulse
        place = index * width
        payload = self._payloads[index % len(self._payloads)]
        pulse[0] = place
        marks[place] = now_ns()
        for run in self._runs:
            payload = run(payload)
            place += 1
            marks[place] = now_ns()
            pulse[0] = place
        self._reader.read_into(self._counters, (index + 1) * 5)

    def _skip_counters(self, index: int) -> None:
        """A dropped frame cost nothing: its counters are those of the frame before."""
        base = index * 5
        for offset in range(5):
            self._counters[base + 5 + offset] = self._counters[base + offset]


def _view(array: NDArray[Any]) -> Any:
    """Returns a flat view whose items are plain integers; numpy would make an object of each."""
    flat: Any = array.reshape(-1)
    return memoryview(flat)


LOOPS: dict[str, Callable[[TimedLoop, int, int], int]] = {
    "closed": TimedLoop.run_closed,
    "fifo": TimedLoop.run_fifo,
    "latest": TimedLoop.run_latest,
}


def arrival_offset_ns(index: int, rate: Fraction) -> int:
    """Returns when frame `index` arrives after frame 0, without accumulated rounding."""
    return index * 1_000_000_000 * rate.denominator // rate.numerator
