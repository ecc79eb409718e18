"""A verdict is about one file and one budget: `budget-check verify` refuses any other."""

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.file_kind import require_file
from latency_budget.budget import Budget
from latency_budget.gate import Verdict
from latency_budget.head_metric import was_lower_better
from latency_budget.plan import make_plan
from latency_budget.report import Report
from latency_budget.tiers import Tier


@dataclass(frozen=True)
class Match:
    """Whether an artifact may ship on a report.

    Attributes:
        is_accepted: it is the measured file, and the verdict on it is pass.
        detail: why, in one line.
    """

    is_accepted: bool
    detail: str


def match_artifact(report: Report, artifact: Path) -> Match:
    """Compares an artifact with the file that a report's verdict is about.

    The verdict is that of the last variant; an earlier one, such as the float reference, was only
    measured beside it.

    Raises:
        InputError: the artifact cannot be read, or the report names no digest.
    """
    candidate = report.variants[-1]
    if not candidate.sha256:
        raise InputError(
            "the report names no digest: its samples were recorded elsewhere",
            "a report of a measured artifact",
            "run budget-check with the model itself",
        )
    require_file(artifact, "the artifact to ship")
    found = sha256_file(artifact)
    if found != candidate.sha256:
        others = [v.name for v in report.variants[:-1] if v.sha256 == found]
        what = f"it is '{others[0]}', which was not judged" if others else "it was not measured"
        return Match(
            False,
            f"{artifact} has the SHA-256 {found}, the verdict is about {candidate.sha256}"
            f" ({candidate.artifact}): {what}",
        )
    if report.verdict.value != "pass":
        return Match(False, f"{artifact} is the measured file, but its verdict is"
                     f" {report.verdict.value}")  # fmt: skip
    unmet = [gate for gate in (*report.gates, *candidate.gates) if gate.verdict is not Verdict.PASS]
    if unmet:
        return Match(
            False,
            f"the report contradicts itself: its verdict is pass, but '{unmet[0].name}' is "
            f"{unmet[0].verdict.value}",
        )
    mode = _mode_of(candidate.details.get("plan"))
    where = f" in the driving mode '{mode}', with no other heads" if mode else ""
    return Match(True, f"{artifact} is the measured file (SHA-256 {found}) and it passed{where}")


def match_limits(
    report: Report, budget: Budget, tier: Tier | None = None, *, mode: str | None = None
) -> Match:
    """Compares the limits that a report was judged by with those that a deployment asks for.

    Args:
        report: of a measured artifact; its plan holds the limits.
        budget: what the frame must keep. A network measured alone is to have kept the part of it
            that the other stages leave, and the contracts of those heads that were judged.
        tier: the evidence that must have been collected; None for any.
        mode: the driving mode that it must have been judged for; None for every head.

    Raises:
        InputError: the report holds no plan, or `budget` no such mode.
    """
    budget = budget.for_mode(mode) if mode is not None else budget
    plan = report.variants[-1].details.get("plan")
    values = plan.get("values") if isinstance(plan, Mapping) else None
    if not isinstance(values, Mapping):
        raise InputError("the report holds no plan", "a report of budget-check on an artifact")
    was = _mode_of(plan)
    if was != mode:
        found_heads, wanted_heads = (
            "every head" if name is None else f"the heads of mode '{name}'" for name in (was, mode)
        )
        return Match(False, f"it was judged with {found_heads} instead of {wanted_heads}")
    heads = _with_directions(values.get("heads"))
    part = _part_of(budget, report, heads)
    wanted = [_limits_of(one, tier) for one in (budget, part) if one]
    found = min((_differences({**values, "heads": heads}, limits) for limits in wanted), key=len)
    if found:
        return Match(False, f"it was judged by other limits: {', '.join(found)}")
    return Match(True, "it was judged by this budget")


def _mode_of(plan: Any) -> str | None:
    """Returns the driving mode of a report's plan, None for every head or without a plan."""
    for key in ("values", "how", "mode"):
        plan = plan.get(key) if isinstance(plan, Mapping) else None
    return None if plan is None else str(plan)


def _differences(
    found: Mapping[str, Any], limits: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """Names each limit that is not as it should be, those of tables one by one."""
    named: list[str] = []
    for key in dict.fromkeys((*limits, *(found if prefix else ()))):
        was, wanted = found.get(key), limits.get(key)
        if isinstance(was, Mapping) and isinstance(wanted, Mapping):
            named += _differences(was, wanted, f"{prefix}{key}.")
        elif was != wanted:
            named.append(f"{prefix}{key} {json.dumps(was)} instead of {json.dumps(wanted)}")
    return named


def _limits_of(budget: Budget, tier: Tier | None) -> dict[str, Any]:
    plan = make_plan(budget, tier or Tier(frames=1), subject="", sha256="", how={})
    keys = ("frame", "stages", "heads", "environment", *(("tier",) if tier else ()))
    limits: dict[str, Any] = json.loads(json.dumps({key: plan.values[key] for key in keys}))
    return limits


def _with_directions(heads: Any) -> dict[str, Any]:
    """Returns the judged contracts, older versions' with the direction that these assumed."""
    if not isinstance(heads, Mapping):
        return {}
    return {
        str(name): {"lower_is_better": was_lower_better(str(contract.get("metric"))), **contract}
        if isinstance(contract, Mapping)
        else contract
        for name, contract in heads.items()
    }


def _part_of(budget: Budget, report: Report, heads: Container[str]) -> Budget | None:
    """Returns the budget of the measured stages and heads; None where the others leave nothing."""
    try:
        part = budget.for_part(report.variants[-1].run.stage_names)
    except InputError:
        return None
    return replace(part, heads={name: budget.heads[name] for name in budget.heads if name in heads})
