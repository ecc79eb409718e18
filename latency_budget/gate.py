"""A gate: one question, its answer, and the evidence for it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from latency_budget.bursts import bound_miss_rate
from latency_budget.run import Nanoseconds, Run
from latency_budget.statistics import bound_ns, claim_percentile, find_step, misses_allowed

ONLY_REPORTED = "reported only: "
"""Begins the detail of a gate that `is_only_reported`: a report.json keeps that nowhere else."""


class Verdict(StrEnum):
    """The outcome of a gate or of a whole check, from best to worst."""

    PASS = "pass"
    INCONCLUSIVE = "inconclusive"
    FAIL = "fail"
    INVALID = "invalid"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 inconclusive, 4 invalid."""
        return {"pass": 0, "fail": 1, "inconclusive": 3, "invalid": 4}[self.value]


@dataclass(frozen=True)
class Gate:
    """One question and its answer.

    Attributes:
        name: what was judged.
        verdict: the answer.
        detail: the evidence in one line.
        is_only_reported: it would be invalid, if the budget did not ask only to report the machine.
    """

    name: str
    verdict: Verdict
    detail: str
    is_only_reported: bool = False

    @classmethod
    def only_report(cls, name: str, detail: str) -> Self:
        """Returns a pass for what would be invalid: the budget's environment is "report"."""
        return cls(name, Verdict.PASS, f"{ONLY_REPORTED}{detail}", is_only_reported=True)


def judge_percentile(
    name: str,
    latency_ns: Nanoseconds,
    limit_ns: int,
    confidence: float,
    quantile: float = 0.99,
    *,
    in_bursts: bool = False,
) -> Gate:
    """Judges "this percentile is within the limit" by order statistics.

    Args:
        name: of the gate.
        latency_ns: [n] in the order of time, `DROPPED_NS` for dropped frames.
        limit_ns: a frame that takes longer is a miss.
        confidence: of the claim and of its opposite.
        quantile: the percentile.
        in_bursts: misses may come in bursts, so that it fails only where the lower bound of
            `bursts.bound_miss_rate` proves it too. A pass is no stricter: that is a gate of its
            own.
    """
    is_miss = latency_ns > limit_ns
    misses = int(is_miss.sum())
    claim = claim_percentile(misses, len(latency_ns), quantile, confidence)
    bound = bound_ns(np.sort(latency_ns), quantile, confidence, upper=True)
    allowed = misses_allowed(len(latency_ns), quantile, confidence) if len(latency_ns) else None
    shown = f"{misses} of {claim.count} frames over {limit_ns / 1e6:.2f} ms"
    shown += f" ({allowed} allowed)" if allowed is not None else ""
    if bound is not None:
        shown = f"at most {bound / 1e6:.2f} ms at {100 * confidence:g} % confidence; {shown}"
    outcome = claim.outcome
    if outcome == "fail" and in_bursts:
        least = bound_miss_rate(is_miss, confidence=confidence).lower_rate
        if least <= 1.0 - quantile:
            outcome = "inconclusive"
            shown += f"; they come in bursts, so {least:.2%} in the long run may do this: no fail"
    if claim.outcome == "inconclusive":
        shown += f"; {claim.more_frames} more frames without a miss needed"
    elif claim.outcome == "pass" and bound is not None:
        shown += f"; headroom {(limit_ns - bound) / 1e6:.2f} ms"
    return Gate(name, Verdict(outcome), shown)


def settle_steps(
    judge_at: Callable[[int], list[Gate]], run: Run, times_ns: Nanoseconds
) -> list[Gate]:
    """Judges times that were written in coarse steps: what less than one step turns is not proven.

    33 ms of a clock that counts milliseconds may have been 33.9 ms; whether it cuts off, rounds or
    rounds up is not known.

    Args:
        judge_at: makes the gates, with all times later by so many nanoseconds.
        run: the run; only recorded times have steps.
        times_ns: [processed] those that are judged.

    Returns:
        the gates of the times as they are, inconclusive where one does not hold within a step.
    """
    gates = judge_at(0)
    if run.mode != "recorded" or not len(times_ns):
        return gates
    step_ns = find_step(times_ns)
    others = {
        Verdict.PASS: ("later", judge_at(step_ns - 1)),
        Verdict.FAIL: ("earlier", judge_at(1 - step_ns)),
    }
    settled = []
    for index, gate in enumerate(gates):
        which, shifted = others.get(gate.verdict, ("", gates))
        if shifted[index].verdict is not gate.verdict:
            note = f"no {gate.verdict.value}: written in steps of {step_ns / 1e6:g} ms, and less "
            detail = f"{gate.detail}; {note}than one step {which} it would not hold"
            gate = Gate(gate.name, Verdict.INCONCLUSIVE, detail)
        settled.append(gate)
    return settled
