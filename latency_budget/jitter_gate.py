"""The gate on jitter, P99/P50; where frames are slow in bursts, as careful as the gate on P99."""

import numpy as np

from latency_budget.budget import FrameBudget
from latency_budget.bursts import bound_miss_rate, longest_run
from latency_budget.gate import Gate, Verdict
from latency_budget.run import DROPPED_NS, Nanoseconds, Run
from latency_budget.statistics import bound_ns, claim_ratio, percentile_ns, samples_needed

_SHARE = 0.01
_CONFIDENCE = 0.95
_FEWEST_IN_ROW = 5
"""So many slow frames one after another, and half of all slow ones, are an event of its own."""


def judge_jitter(
    run: Run, frame: FrameBudget, *, in_bursts: bool = False, later_ns: int = 0
) -> Gate:
    """Judges P99/P50 against its limit.

    Args:
        run: the frames.
        frame: the limit, and the spread that always keeps it.
        in_bursts: slow frames may come in bursts, so that the claim and its opposite must hold by
            `bursts.bound_miss_rate` as well.
        later_ns: added to what is held against the limit and taken from P50, see
            `gate.settle_steps`.
    """
    ordered = np.sort(run.latency_ns)
    claim = claim_ratio(
        ordered,
        frame.p99_over_p50,
        confidence=_CONFIDENCE,
        floor_ns=_floor_ns(frame),
        later_ns=later_ns,
    )
    outcome, parts = claim.outcome, []
    if claim.ratio is not None and claim.spread_ns is not None:
        parts.append(f"P99/P50 = {claim.ratio:.3f} (P99 - P50 = {claim.spread_ns / 1e6:.2f} ms)")
    if claim.upper is not None:
        parts.append(f"at most {claim.upper:.3f} at 95 % confidence")
    if claim.outcome == "fail" and claim.lower is not None:
        parts.append(f"at least {claim.lower:.3f} at 95 % confidence")
    parts.append(f"limit {frame.p99_over_p50:g}")
    if claim.outcome == "inconclusive" and claim.more_frames:
        parts.append(f"{claim.more_frames} more frames needed")
    elif claim.ratio is None and run.count >= samples_needed(0.99):
        parts.append("no P99: too many frames were dropped")
    if in_bursts and claim.outcome != "inconclusive":
        doubt = _doubt_in_bursts(run.latency_ns, claim.outcome == "pass", frame, later_ns)
        if doubt:
            outcome = "inconclusive"
            parts.append(doubt)
    if outcome != "pass":
        parts += _describe_row(run.latency_ns, ordered, frame)
    return Gate("jitter P99/P50", Verdict(outcome), ", ".join(parts))


def _floor_ns(frame: FrameBudget) -> int:
    return round(frame.jitter_floor_ms * 1e6)


def _find_edge(frame: FrameBudget, median_ns: int) -> float:
    """Returns from where on frames are slow: P99 may be as high, in nanoseconds."""
    return max(frame.p99_over_p50 * median_ns, median_ns + _floor_ns(frame))


def _describe_row(latency_ns: Nanoseconds, ordered: Nanoseconds, frame: FrameBudget) -> list[str]:
    """Says how many of the slow frames came one after another, where that is most of them."""
    median = percentile_ns(ordered, 0.5)
    if median is None:
        return []
    edge_ns = _find_edge(frame, median)
    slow = (latency_ns > edge_ns) & (latency_ns != DROPPED_NS)
    row, count = longest_run(slow), int(slow.sum())
    if row < _FEWEST_IN_ROW or row < count / 2:
        return []
    return [f"{row} of the {count} frames above {edge_ns / 1e6:.2f} ms came one after another"]


def _doubt_in_bursts(
    latency_ns: Nanoseconds, is_pass: bool, frame: FrameBudget, later_ns: int
) -> str:
    """Returns why bursts leave open what independent frames would prove; empty if they do not.

    P99/P50 is within the limit where no more than 1 % of the frames take longer than the limit
    times P50. As in `claim_ratio`, half of the error chance is for P50 and half for that share.
    """
    each = 1 - (1 - _CONFIDENCE) / 2
    median = bound_ns(np.sort(latency_ns), 0.5, each, upper=not is_pass) or 0
    edge_ns = _find_edge(frame, median - later_ns) - later_ns
    bound = bound_miss_rate(latency_ns > edge_ns, confidence=each)
    if is_pass and bound.rate >= _SHARE:
        more = bound.count_missing(_SHARE, len(latency_ns))
        return (
            f"frames above {edge_ns / 1e6:.2f} ms may be {min(1.0, bound.rate):.2%} of all if they "
            f"come in bursts of {bound.burst_frames:.0f}, {more} more without one needed"
        )
    if not is_pass and bound.lower_rate <= _SHARE:
        return (
            f"frames above {edge_ns / 1e6:.2f} ms come in bursts, so {bound.lower_rate:.2%} in the "
            "long run may do this: no fail"
        )
    return ""
