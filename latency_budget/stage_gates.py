"""The gates on single stages: each against its budget, and all together against the frame's."""

import numpy as np

from latency_budget.budget import Budget
from latency_budget.gate import Gate, Verdict, judge_percentile, settle_steps
from latency_budget.run import DROPPED_NS, Run
from latency_budget.statistics import bound_ns, claim_percentile, frames_needed, stage_quantile
from latency_budget.tiers import Tier


def judge_stage(run: Run, name: str, budget: Budget, tier: Tier) -> Gate:
    """Judges one stage's P99; it says whether the stricter quantile is proven too."""
    label = f"stage {name} P99"
    limit_ns = round(budget.stages[name] * 1e6)
    if name not in run.stage_names:
        known = ", ".join(run.stage_names) or "none"
        return Gate(label, Verdict.INCONCLUSIVE, f"not measured (measured stages: {known})")
    durations = run.stage_ns(name)
    in_bursts = tier.rule == "cluster"

    def judge_at(later_ns: int) -> list[Gate]:
        limit = limit_ns - later_ns
        return [judge_percentile(label, durations, limit, tier.confidence, in_bursts=in_bursts)]

    # A stage may take ever the same time (an ISP's); the frame's gates still settle its steps.
    is_fixed = bool(len(durations)) and durations.min() == durations.max()
    (gate,) = judge_at(0) if is_fixed else settle_steps(judge_at, run, durations)
    if len(budget.stages) == 1:
        return gate
    quantile = stage_quantile(len(budget.stages))
    misses = int((durations > limit_ns).sum())
    strict = claim_percentile(misses, len(durations), quantile, tier.confidence)
    note = f"P{100 * quantile:.4g} {'proven' if strict.outcome == 'pass' else 'not proven'}"
    return Gate(label, gate.verdict, f"{gate.detail}; {note}")


def judge_stages_together(run: Run, budget: Budget, tier: Tier) -> Gate:
    """Judges whether the stages alone prove the frame, whatever the dependence between them.

    P(total > sum of b_i) <= sum of P(stage_i > b_i): k stages with budgets that add up to the
    deadline, each proven at 1 - 0.01 / k with its share of the error chance, imply the frame's P99,
    its wait apart. A dropped frame counts as over in every stage. A stage that is not proven or has
    no budget makes it inconclusive, and so does a frame that was late though its stages were not:
    the frame's own gate decides.
    """
    name = "stages imply the frame"
    count = len(budget.stages)
    total_ms = sum(budget.stages.values())
    if round(total_ms * 1e6) > budget.frame.deadline_ns:
        return Gate(
            name,
            Verdict.INCONCLUSIVE,
            f"their budgets add up to {total_ms:g} ms, the deadline is "
            f"{budget.frame.deadline_ns / 1e6:g} ms",
        )
    quantile, confidence = stage_quantile(count), 1 - (1 - tier.confidence) / count
    open_stages = [f"{s} has no budget" for s in run.stage_names if s not in budget.stages]
    dropped = int(run.dropped.sum())
    is_late = run.find_misses(budget.frame.deadline_ns)[~run.dropped]
    for stage, limit_ms in budget.stages.items():
        if stage not in run.stage_names:
            open_stages.append(f"{stage} was not measured")
            continue
        durations = run.stage_ns(stage)
        is_over = durations > round(limit_ms * 1e6)
        is_late &= ~is_over
        misses = int(is_over.sum()) + dropped
        if claim_percentile(misses, run.count, quantile, confidence).outcome != "pass":
            ordered = np.sort(np.append(durations, np.full(dropped, DROPPED_NS)))
            bound = bound_ns(ordered, quantile, confidence, upper=True)
            shown = "no bound" if bound is None else f"at most {bound / 1e6:.2f} ms"
            needed = frames_needed(misses, quantile, confidence)
            open_stages.append(f"{stage}: {misses} over, {shown}, {needed} frames needed")
    if is_late.any():
        open_stages.append(f"{int(is_late.sum())} frames late with every stage within its budget")
    claim = f"each of {count} stages at P{100 * quantile:.4g}, {100 * confidence:.4g} % confidence"
    if open_stages:
        return Gate(name, Verdict.INCONCLUSIVE, f"{claim}; not proven: {'; '.join(open_stages)}")
    claim += ": proven, so P99 of the frame, its wait apart, is within its deadline"
    return Gate(name, Verdict.PASS, claim)
