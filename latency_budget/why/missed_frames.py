"""For each missed frame: which stage overran, and what happened to the process meanwhile.

The timed loop only copies counters between frames; everything here is worked out afterwards. The
counters are those of the thread that runs the stages: what happens to a runtime's own worker
threads shows as a longer stage and as nothing else.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latency_budget.run import Run

WAIT = "waiting"
DROPPED = "dropped"
GC, QUEUE = "garbage collection", "queueing"
MAJOR_FAULT, MINOR_FAULT = "disk page fault", "page fault"
PREEMPTED, THROTTLED, STOPPED, UNKNOWN = "preempted", "throttled", "stopped", "not recorded"
TOO_SLOW = "too slow as usual"
_FEWEST_MINOR_FAULTS = 64
"""Fewer new pages than this in one frame (256 kB) take less time than a miss is worth."""
_TELLING_SHARE = 0.1
_FRAMES_LISTED = 200


@dataclass(frozen=True)
class Cause:
    """Something that happened in a missed frame.

    Attributes:
        kind: one of the constants of this module.
        detail: with its figures, in a few words.
        lost_ms: time it is known to have taken; None where only a count is known.
    """

    kind: str
    detail: str
    lost_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class MissedFrame:
    """One frame over its deadline.

    Attributes:
        index: its number in the run.
        latency_ms: from arrival to result; None for a dropped frame.
        stage: the stage that took most beyond its median, "waiting" where the wait for its turn
            did, "dropped" where it never ran.
        beyond_ms: by how much; None for a dropped frame.
        causes: what is known to have happened, the most telling first; never empty.
    """

    index: int
    latency_ms: float | None
    stage: str
    beyond_ms: float | None
    causes: tuple[Cause, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns it as report.json holds it."""
        return {
            "frame": self.index,
            "latency_ms": self.latency_ms,
            "stage": self.stage,
            "beyond_ms": self.beyond_ms,
            "causes": [cause.detail for cause in self.causes],
            "kind": self.causes[0].kind,
        }


def explain_misses(run: Run, deadline_ns: int) -> tuple[MissedFrame, ...]:
    """Returns every missed frame of a run with its stage and causes, in the order of time.

    Args:
        run: the frames; with counters and garbage collections where they were recorded.
        deadline_ns: a frame is missed when it takes longer, or was dropped.
    """
    missed = np.flatnonzero(run.find_misses(deadline_ns))
    if not len(missed):
        return ()
    parts = _Parts.of(run)
    if parts.usual_ns[1:].sum() > deadline_ns:
        return tuple(_explain_slow(run, parts, int(index)) for index in missed)
    return tuple(_explain(run, parts, int(index)) for index in missed)


def summarise_misses(misses: tuple[MissedFrame, ...]) -> dict[str, Any]:
    """Returns counts per stage and per cause, and the first frames, as report.json holds them."""
    return {
        "count": len(misses),
        "by_stage": dict(Counter(miss.stage for miss in misses).most_common()),
        "by_cause": dict(Counter(miss.causes[0].kind for miss in misses).most_common()),
        "frames": [miss.to_dict() for miss in misses[:_FRAMES_LISTED]],
    }


@dataclass(frozen=True)
class _Parts:
    """What each frame consists of, and what is usual.

    Attributes:
        names: the wait, then the stages.
        duration_ns: [n, k + 1] of each; meaningless for dropped frames.
        usual_ns: [k + 1] medians over the processed frames.
        grown: per counter, [n] how much it grew; missing where it was not recorded.
        usual: per counter, its median growth.
    """

    names: tuple[str, ...]
    duration_ns: NDArray[np.int64]
    usual_ns: NDArray[np.float64]
    grown: dict[str, NDArray[np.int64]]
    usual: dict[str, float]

    @classmethod
    def of(cls, run: Run) -> "_Parts":
        names = (WAIT, *(run.stage_names or ("frame",)))
        wait = (run.start_ns - run.arrival_ns)[:, None]
        duration = np.concatenate([wait, np.diff(run.marks_ns, axis=1)], axis=1)
        processed = duration[~run.dropped]
        usual = np.median(processed, axis=0) if len(processed) else np.zeros(len(names))
        grown = {}
        for name in ("minor_faults", "major_faults", "involuntary_switches", "wait_ns"):
            values = run.counts_of(name)
            if values is not None and len(values) == run.count:
                grown[name] = values
        return cls(
            names,
            duration,
            usual,
            grown,
            {name: float(np.median(values)) for name, values in grown.items()},
        )

    def above_usual(self, name: str, index: int) -> int:
        """How much more than usual a counter grew in a frame; 0 where it was not recorded."""
        values = self.grown.get(name)
        return 0 if values is None else max(0, int(values[index] - self.usual[name]))


def _explain_slow(run: Run, parts: _Parts, index: int) -> MissedFrame:
    """A frame of a pipeline whose medians alone are over the deadline: nothing has to happen."""
    if run.dropped[index]:
        return _explain(run, parts, index)
    worst = int(np.argmax(parts.usual_ns[1:])) + 1
    service_ms, stage_ms = parts.usual_ns[1:].sum() / 1e6, parts.usual_ns[worst] / 1e6
    text = f"the stages' medians add up to {service_ms:.1f} ms, {stage_ms:.1f} of them here"
    return MissedFrame(
        index=index,
        latency_ms=round(float(run.done_ns[index] - run.arrival_ns[index]) / 1e6, 3),
        stage=parts.names[worst],
        beyond_ms=round(float((parts.duration_ns[index] - parts.usual_ns)[worst]) / 1e6, 3),
        causes=(Cause(TOO_SLOW, text),),
    )


def _explain(run: Run, parts: _Parts, index: int) -> MissedFrame:
    if run.dropped[index]:
        detail = f"overtaken while {_describe_busy(run, index)}"
        return MissedFrame(
            index=index,
            latency_ms=None,
            stage=DROPPED,
            beyond_ms=None,
            causes=(Cause(QUEUE, detail),),
        )
    beyond = parts.duration_ns[index] - parts.usual_ns
    worst = int(np.argmax(beyond))
    causes = _find_causes(run, parts, index, float(beyond[worst]))
    if worst == 0:
        causes = [_describe_queue(run, index), *causes]
    return MissedFrame(
        index=index,
        latency_ms=round(float(run.done_ns[index] - run.arrival_ns[index]) / 1e6, 3),
        stage=parts.names[worst],
        beyond_ms=round(float(beyond[worst]) / 1e6, 3),
        causes=tuple(causes) or (Cause(UNKNOWN, "no recorded event explains it"),),
    )


def _find_causes(run: Run, parts: _Parts, index: int, beyond_ns: float) -> list[Cause]:
    least_ns = max(0.0, beyond_ns) * _TELLING_SHARE
    causes = []
    collected = _overlap_ns(run, index)
    if collected > least_ns:
        ms = collected / 1e6
        causes.append(Cause(GC, f"Python collected garbage for {ms:.1f} ms", ms))
    waited = parts.above_usual("wait_ns", index)
    switches = parts.above_usual("involuntary_switches", index)
    if switches and waited > least_ns:
        ms = waited / 1e6
        text = f"preempted {switches} times, {ms:.1f} ms without a processor"
        causes.append(Cause(PREEMPTED, text, ms))
    elif waited > least_ns:
        ms = waited / 1e6
        causes.append(Cause(PREEMPTED, f"{ms:.1f} ms ready but without a processor", ms))
    elif switches and "wait_ns" not in parts.grown:
        causes.append(Cause(PREEMPTED, f"preempted {switches} times"))
    disk = parts.above_usual("major_faults", index)
    if disk:
        causes.append(Cause(MAJOR_FAULT, f"{disk} page faults read a disk"))
    minor = parts.above_usual("minor_faults", index)
    if minor >= _FEWEST_MINOR_FAULTS:
        causes.append(Cause(MINOR_FAULT, f"{minor} new pages touched: memory was allocated"))
    causes.sort(key=lambda cause: -(cause.lost_ms or 0.0))
    return causes + _of_the_whole_run(run)


def _of_the_whole_run(run: Run) -> list[Cause]:
    """What happened at some time in the run; it cannot be laid on one frame."""
    causes = []
    if run.snapshots is not None:
        before, after = (getattr(part, "throttle_count", None) for part in run.snapshots)
        if before is not None and after is not None and after > before:
            causes.append(Cause(THROTTLED, "the processor was throttled during the run"))
    if run.stops:
        causes.append(Cause(STOPPED, f"the process was stopped {run.stops} times in the run"))
    return causes


def _overlap_ns(run: Run, index: int) -> int:
    begin, end = int(run.arrival_ns[index]), int(run.done_ns[index])
    return sum(max(0, min(end, last) - max(begin, first)) for first, last in run.collections_ns)


def _describe_queue(run: Run, index: int) -> Cause:
    root = _first_of_queue(run, index)
    ms = float(run.start_ns[index] - run.arrival_ns[index]) / 1e6
    if root == index:
        return Cause(QUEUE, f"started {ms:.1f} ms late though nothing was before it", ms)
    return Cause(QUEUE, f"waited {ms:.1f} ms in the queue that frame {root} began", ms)


def _first_of_queue(run: Run, index: int) -> int:
    """The frame that found the pipeline idle and after which it never was until `index`."""
    while index > 0 and not run.dropped[index - 1]:
        if run.done_ns[index - 1] <= run.arrival_ns[index]:
            return index
        index -= 1
    return index


def _describe_busy(run: Run, index: int) -> str:
    before = np.flatnonzero(~run.dropped[:index])
    if not len(before):
        return "the pipeline was busy"
    last = int(before[-1])
    ms = float(run.done_ns[last] - run.start_ns[last]) / 1e6
    return f"frame {last} ran for {ms:.1f} ms"
