"""The gate on the steady state: a run that never settled describes no state of the machine."""

from latency_budget.gate import Gate, Verdict
from latency_budget.run import Run
from latency_budget.steady import find_steady

_UNKNOWN_RATE_HZ = 30.0


def judge_steadiness(run: Run, mode: str) -> Gate:
    """Judges each process of a run by itself; their spread is reported elsewhere.

    Nothing is cut off: frames before the steady part are judged like all others. Where only
    latencies were recorded, frames that had to wait for the one before tell nothing of what a frame
    takes, and are left out of this question alone: a stall is a fail, not a state of its own.

    Args:
        run: the frames; those of a closed loop follow each other at once.
        mode: `Budget.environment`; "report" only shows an unsteady run.
    """
    parts = run.split()
    found = []
    for number, part in enumerate(parts, 1):
        service = part.service_ns
        if run.mode == "recorded" and not run.stage_names:
            service = service[part.was_idle]
        period_s = 1 / (run.rate_hz or _UNKNOWN_RATE_HZ)
        if run.mode == "closed" and len(service):
            period_s = float(service.mean()) / 1e9
        steadiness = find_steady(service, period_s)
        label = f"process {number}: " if len(parts) > 1 else ""
        waited = part.service_ns.size - service.size
        if steadiness.outcome == "unknown" and waited:
            label += f"{waited} frames waited for the one before; of the others, "
        found.append((steadiness.outcome, f"{label}{steadiness.detail}"))
    bad = [detail for outcome, detail in found if outcome == "unsteady"]
    if not bad:
        return Gate("steady state", Verdict.PASS, "; ".join(dict.fromkeys(d for _, d in found)))
    if mode == "report":
        return Gate.only_report("steady state", "; ".join(bad))
    return Gate("steady state", Verdict.INVALID, "; ".join(bad))
