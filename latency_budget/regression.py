"""Has it become slower than a stored baseline? Intervals for the tail, Mann-Whitney for the middle.

A bare percentage would raise false alarms: two runs of the same build differ by more than 5 % in
P99 in 28 % of pairs at 300 frames (simulated).
"""

import math
from dataclasses import dataclass

import numpy as np

from latency_budget.run import DROPPED_NS, Nanoseconds
from latency_budget.statistics import bound_ns, percentile_ns

MEDIAN_P_VALUE = 0.002
MEDIAN_EFFECT = 0.01


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
        "fail" where the 95 % interval of P99 lies above the baseline's, or the median is surely
        (p < 0.002) and by more than 1 % slower; "inconclusive" with too few frames for either.
    """
    before, after = np.sort(baseline_ns), np.sort(candidate_ns)
    p50_before, p50_after = percentile_ns(before, 0.5), percentile_ns(after, 0.5)
    high_before = bound_ns(before, 0.99, 0.975, upper=True)
    low_after = bound_ns(after, 0.99, 0.975, upper=False)
    if not p50_before or not p50_after or high_before is None or low_after is None:
        return Regression("inconclusive", "too few frames for an interval of P99 (368 needed)")
    effect = p50_after / p50_before - 1
    p_value = mann_whitney_p(before[before < DROPPED_NS], after[after < DROPPED_NS])
    middle = f"P50 {effect:+.1%} (p = {p_value:.2g})"
    if low_after > high_before:
        return Regression(
            "fail",
            f"P99 is surely above the baseline's: {low_after / 1e6:.2f} ms or more against "
            f"{high_before / 1e6:.2f} ms or less; {middle}",
        )
    if p_value < MEDIAN_P_VALUE and effect > MEDIAN_EFFECT:
        return Regression("fail", f"the median is slower: {middle}")
    return Regression("pass", f"P99 intervals overlap or improved; {middle}")


def mann_whitney_p(first: Nanoseconds, second: Nanoseconds) -> float:
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
