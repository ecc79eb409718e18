"""Has it become slower than a stored baseline? Intervals for the tail, Mann-Whitney for the middle.

A bare percentage would raise false alarms: two runs of the same build differ by more than 5 % in
P99 in 28 % of pairs at 300 frames (simulated). Frames that follow each other are alike (clocks,
temperature, caches), so a slow spell weighs as if many frames had proven it. Both comparisons must
therefore hold over some twenty blocks of each run as well, which are nearly independent.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latency_budget.run import DROPPED_NS, Nanoseconds, Run
from latency_budget.statistics import bound_ns, find_step, frames_needed, percentile_ns

BLOCKS = 20
BLOCK_FRAMES = 30
MEDIAN_P_VALUE = 0.002
TAIL_P_VALUE = 0.01
EFFECT = 0.01
INTERLEAVED_EFFECT = 0.03


@dataclass(frozen=True)
class Regression:
    """The comparison with a baseline.

    Attributes:
        outcome: "pass", "fail" or "inconclusive".
        detail: one line.
    """

    outcome: str
    detail: str


def compare_runs(baseline_ns: Nanoseconds, candidate_ns: Nanoseconds) -> Regression:
    """Compares two runs' latencies.

    Args:
        baseline_ns: [n] latencies of the baseline, `DROPPED_NS` for dropped frames.
        candidate_ns: [m] latencies of the candidate.

    Returns:
        "fail" where the 95 % interval of P99 lies more than 1 % above the baseline's, or the median
        is surely (p < 0.002 over frames and over blocks) and by more than 1 % slower;
        "inconclusive" with too few frames for either, or where times were written in so coarse
        steps that less than one of them, the same for both runs, makes the difference.
    """
    found = _compare_as_written(baseline_ns, candidate_ns)
    processed = [times[times < DROPPED_NS] for times in (baseline_ns, candidate_ns)]
    step_ns = max(find_step(times) for times in processed)
    if found.outcome != "fail" or step_ns == 1:
        return found
    earlier_ns = np.where(
        candidate_ns < DROPPED_NS, np.maximum(1, candidate_ns - (step_ns - 1)), DROPPED_NS
    )
    if _compare_as_written(baseline_ns, earlier_ns).outcome == "fail":
        return found
    note = f"written in steps of {step_ns / 1e6:g} ms, and less than one step would explain it"
    return Regression("inconclusive", f"{found.detail}; no fail: {note}")


def _compare_as_written(baseline_ns: Nanoseconds, candidate_ns: Nanoseconds) -> Regression:
    p50_before = percentile_ns(np.sort(baseline_ns), 0.5)
    p50_after = percentile_ns(np.sort(candidate_ns), 0.5)
    tail = compare_tails(baseline_ns, candidate_ns, allowed=EFFECT)
    if tail.outcome == "inconclusive" or not p50_before or not p50_after:
        return Regression("inconclusive", tail.detail)
    effect = p50_after / p50_before - 1
    processed = [times[times < DROPPED_NS] for times in (baseline_ns, candidate_ns)]
    p_value = max(
        mann_whitney_p(*processed),
        mann_whitney_p(*(np.median(_cut(times), axis=1) for times in processed)),
    )
    middle = f"P50 {effect:+.1%} (p = {p_value:.2g})"
    if tail.outcome == "pass" and p_value < MEDIAN_P_VALUE and effect > EFFECT:
        return Regression("fail", f"the median is slower: {middle}")
    return Regression(tail.outcome, f"{tail.detail}; {middle}")


def compare_interleaved(reference: Run, candidate: Run) -> Regression:
    """Compares two runs whose processes were measured in turns (`restarts.measure_in_turns`).

    What one process differs from the next of the same build is measured with them: median or tail
    must be slower by more than 3 %, and by more than twice that spread.

    Args:
        reference: of the build before, several processes.
        candidate: of the build after, as many.

    Returns:
        "fail" where the median or the tail is surely slower; see `compare_runs` for the tail.
    """
    medians = _medians(reference), _medians(candidate)
    before_ns, after_ns = (float(np.median(each)) for each in medians)
    spread = max(float(np.abs(each / np.median(each) - 1).max()) for each in medians)
    effect = after_ns / before_ns - 1
    limit = max(INTERLEAVED_EFFECT, 2 * spread)
    p_value = mann_whitney_p(reference.service_ns, candidate.service_ns)
    shown = (
        f"P50 {after_ns / 1e6:.2f} against {before_ns / 1e6:.2f} ms ({effect:+.1%}), "
        f"processes of one build differ by {spread:.1%}"
    )
    tail = compare_tails(reference.latency_ns, candidate.latency_ns, allowed=limit)
    if tail.outcome != "pass":
        return Regression(tail.outcome, f"{tail.detail}; {shown}")
    if effect > limit and p_value < MEDIAN_P_VALUE:
        return Regression("fail", f"the median is slower: {shown}, limit {limit:.1%}")
    return Regression("pass", f"{tail.detail}; {shown}")


def _medians(run: Run) -> NDArray[np.float64]:
    return np.asarray([float(np.median(part.service_ns)) for part in run.split()])


def compare_tails(
    baseline_ns: Nanoseconds, candidate_ns: Nanoseconds, *, allowed: float = 0.0
) -> Regression:
    """Compares P99 alone, by its two 95 % intervals.

    Args:
        baseline_ns: [n] latencies of the baseline.
        candidate_ns: [m] latencies of the candidate.
        allowed: share by which the candidate's may lie above the baseline's.

    Returns:
        "fail" where the intervals are further apart than that, and not by single blocks alone.
    """
    before, after = np.sort(baseline_ns), np.sort(candidate_ns)
    high_before = bound_ns(before, 0.99, 0.975, upper=True)
    low_after = bound_ns(after, 0.99, 0.975, upper=False)
    if high_before is None or low_after is None:
        return Regression("inconclusive", _no_interval(before, after))
    if low_after > high_before * (1 + allowed):
        found = f"{low_after / 1e6:.2f} ms or more against {high_before / 1e6:.2f} ms or less"
        slow = [(_cut(times) > high_before).sum(axis=1) for times in (baseline_ns, candidate_ns)]
        if mann_whitney_p(*slow) >= TAIL_P_VALUE:
            return Regression("pass", f"P99 is above the baseline's in single spells only: {found}")
        return Regression("fail", f"P99 is surely above the baseline's: {found}")
    if low_after > high_before:
        return Regression(
            "pass", f"P99 is above the baseline's, not surely by more than {allowed:.1%}"
        )
    return Regression("pass", "P99 intervals overlap or improved")


def _cut(times: Nanoseconds) -> Nanoseconds:
    """Returns [blocks, frames] the times in their order, cut into `BLOCKS` or fewer, whole ones."""
    size = max(1, min(len(times), max(BLOCK_FRAMES, len(times) // BLOCKS)))
    count = len(times) // size
    return times[: count * size].reshape(count, size)


def _no_interval(before: Nanoseconds, after: Nanoseconds) -> str:
    needed = frames_needed(0, 0.99, 0.975)
    if min(len(before), len(after)) < needed:
        return f"too few frames for an interval of P99 ({needed} needed)"
    which = [
        name
        for name, ordered in (("the baseline's", before), ("the candidate's", after))
        if bound_ns(ordered, 0.99, 0.975, upper=ordered is before) is None
    ]
    return f"too many of {' and '.join(which)} frames were dropped for an interval of P99"


def mann_whitney_p(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Returns the two-sided p value of Mann and Whitney's test, normal with tie correction.

    H. B. Mann, D. R. Whitney, "On a Test of Whether one of Two Random Variables is Stochastically
    Larger than the Other", Annals of Mathematical Statistics 18 (1947).
    """
    n, m = len(first), len(second)
    if not n or not m:
        return 1.0
    values, inverse, counts = np.unique(
        np.concatenate([first, second]), return_inverse=True, return_counts=True
    )
    ranks = np.cumsum(counts) - (counts - 1) / 2
    u = float(ranks[inverse[:n]].sum()) - n * (n + 1) / 2
    total = n + m
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / (total * (total - 1))
    deviation = math.sqrt(n * m / 12 * (total + 1 - ties))
    if len(values) == 1 or deviation == 0:
        return 1.0
    return math.erfc((abs(u - n * m / 2) - 0.5) / deviation / math.sqrt(2))
