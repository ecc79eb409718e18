"""Keeps the statistics of a running pipeline: of everything so far, and of the last frames."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latency_budget.budget import Budget
from latency_budget.run import DROPPED_NS, Nanoseconds
from latency_budget.statistics import bound_ns, percentile_ns
from latency_budget.watch.sample import Sample

WINDOW = 3000
SNAPSHOT_FRAMES = 120


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The state of the pipeline at one moment.

    Attributes:
        frames: so far.
        misses: of them over the deadline or dropped.
        dropped: of them never processed.
        longest_run: most consecutive misses so far.
        window: frames that the percentiles are of, the last ones.
        window_misses: misses among them.
        p50_ms, p99_ms: nearest rank; None with too few frames.
        p99_upper_ms: upper 95 % bound of P99; None with fewer than 299 frames.
        stages_ms: per stage (P50, P99).
        last_ms: latency of the last frame; None where it was dropped.
    """

    frames: int
    misses: int
    dropped: int
    longest_run: int
    window: int
    window_misses: int
    p50_ms: float | None
    p99_ms: float | None
    p99_upper_ms: float | None
    stages_ms: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    last_ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns it for JSON."""
        return {**vars(self), "stages_ms": {k: list(v) for k, v in self.stages_ms.items()}}


class Watcher:
    """Takes frames one by one.

    Args:
        budget: the deadline and the stages' budgets.
        window: frames that percentiles are computed of.
    """

    def __init__(self, budget: Budget, window: int = WINDOW) -> None:
        self.budget = budget
        self.recent: deque[Sample] = deque(maxlen=window)
        self.frames = self.misses = self.dropped = self.longest_run = 0
        self._run = 0

    def add(self, sample: Sample) -> bool:
        """Takes one frame; returns True where it missed the deadline or was dropped."""
        self.frames += 1
        self.recent.append(sample)
        is_miss = self._is_miss(sample)
        self.dropped += sample.latency_ns is None
        self.misses += is_miss
        self._run = self._run + 1 if is_miss else 0
        self.longest_run = max(self.longest_run, self._run)
        return is_miss

    def _is_miss(self, sample: Sample) -> bool:
        latency = sample.latency_ns
        return latency is None or latency > self.budget.frame.deadline_ns

    def figures(self) -> Figures:
        """Returns the figures of this moment."""
        latency = np.asarray(
            [DROPPED_NS if s.latency_ns is None else s.latency_ns for s in self.recent], np.int64
        )
        ordered = np.sort(latency)
        return Figures(
            frames=self.frames,
            misses=self.misses,
            dropped=self.dropped,
            longest_run=self.longest_run,
            window=len(ordered),
            window_misses=int((ordered > self.budget.frame.deadline_ns).sum()),
            p50_ms=_to_ms(percentile_ns(ordered, 0.5)),
            p99_ms=_to_ms(percentile_ns(ordered, 0.99)),
            p99_upper_ms=_to_ms(bound_ns(ordered, 0.99, 0.95, upper=True)),
            stages_ms=self._stages(),
            last_ms=_to_ms(self.recent[-1].latency_ns) if self.recent else None,
        )

    def _stages(self) -> dict[str, tuple[float | None, float | None]]:
        names = list(dict.fromkeys(name for sample in self.recent for name in sample.stages_ns))
        found = {}
        for name in names:
            ordered: Nanoseconds = np.sort(
                np.asarray(
                    [s.stages_ns[name] for s in self.recent if name in s.stages_ns], np.int64
                )
            )
            found[name] = (
                _to_ms(percentile_ns(ordered, 0.5)),
                _to_ms(percentile_ns(ordered, 0.99)),
            )
        return found

    def snapshot(self) -> dict[str, Any]:
        """Returns the figures, and the last frames in full, for a look at an overrun."""
        frames = list(self.recent)[-SNAPSHOT_FRAMES:]
        first = self.frames - len(frames)
        return {
            "figures": self.figures().to_dict(),
            "deadline_ms": self.budget.frame.deadline_ns / 1e6,
            "frames": [
                {
                    "frame": first + index,
                    "latency_ns": sample.latency_ns,
                    "stages_ns": dict(sample.stages_ns),
                    "missed": self._is_miss(sample),
                }
                for index, sample in enumerate(frames)
            ],
        }


def _to_ms(value: int | None) -> float | None:
    return None if value is None or value == DROPPED_NS else round(value / 1e6, 6)
