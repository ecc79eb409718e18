"""The gates on the whole frame: its percentiles, its misses in a row, and its jitter."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from latency_budget.budget import FrameBudget
from latency_budget.bursts import bound_miss_rate, longest_run
from latency_budget.gate import Gate, Verdict, judge_percentile, settle_steps
from latency_budget.jitter_gate import judge_jitter
from latency_budget.run import Run
from latency_budget.sequential import judge_sequence
from latency_budget.tiers import Tier


def judge_frame(run: Run, frame: FrameBudget, tier: Tier) -> list[Gate]:
    """Judges the frames against the deadline and the limit of jitter by a tier's rule."""
    processed = run.latency_ns[~run.dropped]
    return settle_steps(partial(_judge_at, run, frame, tier), run, processed)


def _judge_at(run: Run, frame: FrameBudget, tier: Tier, later_ns: int) -> list[Gate]:
    """Makes the gates as if every frame had been done so much later."""
    deadline_ns = frame.deadline_ns - later_ns
    misses = run.find_misses(deadline_ns)
    what = "frame" if run.is_whole_frame else "part"
    in_bursts = tier.rule == "cluster"
    judge_tail = partial(
        judge_percentile, latency_ns=run.latency_ns, limit_ns=deadline_ns, in_bursts=in_bursts
    )
    gates = [judge_tail(f"{what} P99", confidence=tier.confidence)]
    if tier.rule == "sprt":
        gates[0] = _judge_sequentially(misses, gates[0], tier.confidence)
    if tier.p999_confidence is not None:
        gates.append(judge_tail(f"{what} P99.9", confidence=tier.p999_confidence, quantile=0.999))
    if in_bursts:
        gates.append(_judge_bursts(misses, tier.confidence))
    gates.append(_judge_longest_run(run, deadline_ns, frame.max_consecutive_misses))
    gates.append(judge_jitter(run, frame, in_bursts=in_bursts, later_ns=later_ns))
    return gates


def _judge_sequentially(misses: NDArray[np.bool_], whole: Gate, confidence: float) -> Gate:
    """The sequential rule; frames measured after its decision may still refute a pass."""
    claim = judge_sequence(misses, alpha=1 - confidence)
    if whole.verdict is Verdict.FAIL:
        return whole
    if claim.decided_at is None:
        note = f"undecided, {claim.more_frames} more frames without a miss needed"
        return _add_note(whole, claim.outcome, note)
    missed = int(misses[: claim.decided_at].sum())
    if claim.outcome == "inconclusive":
        note = (
            f"ruled out a pass after {claim.decided_at} frames ({missed} missed, which proves no "
            "fail); take a tier of a fixed number of frames, such as nightly"
        )
    elif claim.outcome == "fail" and whole.verdict is Verdict.PASS:
        note = (
            f"found a fail after {claim.decided_at} frames ({missed} missed), which all frames "
            "together refute: misses gather at some times; leave warm-up out, or take a tier that "
            "bounds bursts, such as nightly"
        )
        return _add_note(whole, "inconclusive", note)
    elif claim.outcome == "fail":
        note = f"found a fail after {claim.decided_at} frames ({missed} missed)"
    else:
        note = f"decided after {claim.decided_at} frames"
    return _add_note(whole, claim.outcome, note)


def _add_note(whole: Gate, outcome: str, note: str) -> Gate:
    return Gate(whole.name, Verdict(outcome), f"sequential test {note}; {whole.detail}")


def _judge_bursts(misses: NDArray[np.bool_], confidence: float) -> Gate:
    bound = bound_miss_rate(misses, confidence=confidence)
    detail = (
        f"at most {min(1.0, bound.rate):.2%} missed at {100 * confidence:g} % if misses come in "
        f"bursts of {bound.burst_frames:.0f} ({bound.clusters} seen), limit 1 %"
    )
    if bound.rate < 0.01:
        return Gate("P99 in bursts", Verdict.PASS, detail)
    detail += f"; {bound.count_missing(0.01, len(misses))} more frames without a miss needed"
    return Gate("P99 in bursts", Verdict.INCONCLUSIVE, detail)


def _judge_longest_run(run: Run, deadline_ns: int, limit: int) -> Gate:
    """The last frames of one process and the first of the next did not follow each other."""
    parts = [part.find_misses(deadline_ns) for part in run.split()]
    longest = max(longest_run(misses) for misses in parts)
    verdict = Verdict.PASS if longest <= limit else Verdict.FAIL
    return Gate("consecutive misses", verdict, f"longest run {longest} frames, limit {limit}")
