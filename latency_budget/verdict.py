"""Judges a run against a budget: one gate per question, and the worst gate is the verdict.

Precedence: invalid, fail, inconclusive, pass. Invalid stands first because a disturbed machine
makes slow frames of its own: a failure measured on it says no more than a pass would.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latency_budget.budget import Budget, HeadContract
from latency_budget.environment import Environment
from latency_budget.frame_gates import judge_frame
from latency_budget.gate import Gate, Verdict
from latency_budget.regression import Regression, compare_interleaved, compare_runs
from latency_budget.run import Nanoseconds, Run
from latency_budget.stage_gates import judge_stage, judge_stages_together
from latency_budget.statistics import percentile_ns
from latency_budget.steady_gate import judge_steadiness
from latency_budget.tiers import Tier

__all__ = [
    "Gate",
    "HeadQuality",
    "Judgement",
    "Verdict",
    "judge",
    "judge_head",
]

_SHORTEST = 0.005
"""A frame below this share of what it may take was most likely written in seconds beneath a name
that says ms; so frames of up to five deadlines are caught, which would pass else."""


@dataclass(frozen=True)
class Judgement:
    """All gates of one run."""

    gates: tuple[Gate, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst gate's verdict."""
        order = list(Verdict)
        return max((gate.verdict for gate in self.gates), key=order.index, default=Verdict.INVALID)


@dataclass(frozen=True)
class HeadQuality:
    """A head's quality before and after.

    Attributes:
        metric: its name.
        reference: the float network's value.
        candidate: the measured network's value.
    """

    metric: str
    reference: float
    candidate: float


def judge(
    run: Run,
    budget: Budget,
    *,
    tier: Tier | None = None,
    environment: Environment | None = None,
    heads: Mapping[str, HeadQuality] | None = None,
    baseline_ns: Nanoseconds | None = None,
    session: Mapping[str, Any] | None = None,
    attempt: int | None = 1,
    reference: Run | None = None,
    baseline_doubt: str = "",
    reference_doubt: str = "",
) -> Judgement:
    """Judges a run.

    Args:
        run: the paced or recorded frames.
        budget: the limits; for a part of a frame, `Budget.for_part`.
        tier: confidence and rule; 95 % by order statistics if not given.
        environment: the machine's state, None where it was not observed (recorded samples).
        heads: quality of each head with a contract.
        baseline_ns: [n] latencies of a stored baseline to compare with.
        session: what `Session.describe()` said; a wish that was not granted is invalid.
        attempt: the how-manieth try of the same plan this is; None where nobody counted, as of
            recorded samples.
        reference: a run measured in turns with `run`, which must not be faster.
        baseline_doubt: why a comparison with the baseline proves nothing; empty if it does.
        reference_doubt: why the reference's frames are invalid; empty if they are not.
    """
    tier = (tier or Tier(frames=run.count)).spend()
    gates = judge_measurement(run, budget, environment=environment, session=session)
    if tier.attempts is not None:
        gates.append(_judge_attempts(attempt, tier.attempts))
    gates += judge_frame(run, budget.frame, tier)
    gates += [judge_stage(run, name, budget, tier) for name in budget.stages]
    if tier.stages_imply_frame and budget.stages:
        gates.append(judge_stages_together(run, budget, tier))
    for name, contract in budget.heads.items():
        gates.append(judge_head(name, contract, (heads or {}).get(name)))
    if reference is not None:
        regression = compare_interleaved(reference, run)
        gates.append(
            _judge_regression("side by side", regression, Verdict.INVALID, reference_doubt)
        )
    if baseline_ns is not None:
        regression = compare_runs(baseline_ns, run.latency_ns)
        if np.array_equal(baseline_ns, run.latency_ns):
            regression = replace(
                regression, detail=f"the baseline holds these very frames; {regression.detail}"
            )
        doubted = Verdict.INCONCLUSIVE
        gates.append(_judge_regression("than before", regression, doubted, baseline_doubt))
    return Judgement(tuple(gates))


def judge_measurement(
    run: Run,
    budget: Budget,
    *,
    environment: Environment | None = None,
    session: Mapping[str, Any] | None = None,
) -> list[Gate]:
    """Judges whether the frames can be believed, whatever they took; see `judge`."""
    gates = [
        _judge_samples(run, budget),
        _judge_machine(environment, budget.environment),
        judge_steadiness(run, budget.environment),
    ]
    return gates if session is None else [*gates, _judge_session(session)]


def _judge_regression(name: str, regression: Regression, doubted: Verdict, doubt: str) -> Gate:
    if doubt:
        return Gate(f"no slower {name}", doubted, f"{doubt}; {regression.detail}")
    return Gate(f"no slower {name}", Verdict(regression.outcome), regression.detail)


def _judge_samples(run: Run, budget: Budget) -> Gate:
    defects = run.find_defects()
    defects += _doubt_unit(run, budget)
    if defects:
        return Gate("samples", Verdict.INVALID, "; ".join(defects))
    dropped = int(run.dropped.sum())
    shown = f"{run.count} frames, {dropped} dropped, {run.mode}"
    if not run.is_numbered:
        shown += "; no column 'frame' or 'dropped': frames that were left out would not be seen"
    return Gate("samples", Verdict.PASS, shown + _ask_for_unit(run, budget))


def _ask_for_unit(run: Run, budget: Budget) -> str:
    """Asks for the unit where even the fastest frame, which waited for none, is far too slow."""
    fastest_ns = int(run.latency_ns[~run.dropped].min(initial=np.iinfo(np.int64).max))
    times = fastest_ns / budget.frame.deadline_ns
    if run.mode != "recorded" or run.dropped.all() or run.is_unit_known or times < 1 / _SHORTEST:
        return ""
    return (
        f"; even the fastest frame takes {fastest_ns / 1e6:.3g} ms, {times:.0f} times the "
        "deadline: is that the column's unit?"
    )


def _doubt_unit(run: Run, budget: Budget) -> tuple[str, ...]:
    """Returns a defect where people's columns are too fast for what the frame may take.

    That is the deadline, or where every stage was recorded and has a budget, the sum of these: a
    frame of light stages is told by small ones.
    """
    typical_ns = percentile_ns(np.sort(run.latency_ns), 0.5)
    allowed_ns, limit = float(budget.frame.deadline_ns), "of the deadline"
    if run.stage_names and set(run.stage_names) <= set(budget.stages):
        stages_ns = 1e6 * sum(budget.stages[name] for name in run.stage_names)
        if stages_ns < allowed_ns:
            allowed_ns, limit = stages_ns, "of its stages' budgets"
    is_doubted = run.mode == "recorded" and not run.is_unit_known
    if not is_doubted or not typical_ns or typical_ns >= _SHORTEST * allowed_ns:
        return ()
    return (
        f"a frame takes {typical_ns / 1e6:.3g} ms, less than {_SHORTEST:.1%} {limit}: is that the "
        "column's unit? if it is, record its stages too and give each a budget of its size",
    )


def _judge_machine(environment: Environment | None, mode: str) -> Gate:
    name = "environment"
    if environment is None:
        verdict = Verdict.INVALID if mode == "strict" else Verdict.PASS
        return Gate(name, verdict, "recorded samples: the machine was not observed")
    by_verdict: dict[str, list[str]] = {}
    for check in environment.checks:
        by_verdict.setdefault(check.verdict, []).append(f"{check.name}: {check.detail}")
    bad = by_verdict.get("invalid", [])
    if mode == "strict":
        bad = bad + by_verdict.get("unknown", [])
    if bad and mode != "report":
        return Gate(name, Verdict.INVALID, "; ".join(bad))
    found = bad + by_verdict.get("warn", [])
    unknown = len(by_verdict.get("unknown", []))
    detail = "; ".join(found) if found else f"{len(environment.checks) - unknown} checks held"
    detail += f"; {unknown} unknown" if unknown else ""
    return Gate.only_report(name, detail) if bad else Gate(name, Verdict.PASS, detail)


def _judge_attempts(attempt: int | None, planned: int) -> Gate:
    if attempt is None:
        return Gate("attempts", Verdict.PASS, f"were not counted; {planned} planned")
    detail = f"attempt {attempt} of {planned} planned for these limits and this file"
    if attempt <= planned:
        return Gate("attempts", Verdict.PASS, detail)
    return Gate(
        "attempts", Verdict.INCONCLUSIVE, f"{detail}; a pass by trying again proves nothing"
    )


def _judge_session(session: Mapping[str, Any]) -> Gate:
    unmet = [
        f"{name}: asked for {value['asked']}, got {value.get('got')}"
        for name, value in session.items()
        if isinstance(value, Mapping)
        and value.get("asked") is not None
        and value["asked"] != value.get("got")
    ]
    verdict = Verdict.INVALID if unmet else Verdict.PASS
    return Gate("asked versus got", verdict, "; ".join(unmet) or "the session is as asked for")


def judge_head(name: str, contract: HeadContract, quality: HeadQuality | None) -> Gate:
    """Judges one head's contract; without a measured quality it is inconclusive."""
    label = f"head {name} {contract.metric}"
    if quality is None:
        return Gate(label, Verdict.INCONCLUSIVE, "quality not measured")
    if quality.metric != contract.metric:
        return Gate(
            label, Verdict.INCONCLUSIVE, f"{quality.metric} measured, not {contract.metric}"
        )
    values = (quality.reference, quality.candidate)
    if not np.isfinite(values).all():
        return Gate(label, Verdict.FAIL, f"{values[0]} became {values[1]}")
    change = values[1] - values[0]
    drop = change if contract.lower_is_better else -change
    verdict = Verdict.PASS if drop <= contract.max_drop + 1e-12 else Verdict.FAIL
    better = " (lower is better)" if contract.lower_is_better else ""
    return Gate(
        label,
        verdict,
        f"{values[0]:.4f} became {values[1]:.4f}, {change:+.4f}{better}; "
        f"allowed drop {contract.max_drop:g}",
    )
