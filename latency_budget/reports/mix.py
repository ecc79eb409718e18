"""The waterfall one can try: per stage, which of its measured variants makes up the frame."""

import json
from typing import Any

from latency_budget.report import Report
from latency_budget.report_extras import ReportExtras, StageOption
from latency_budget.reports.text import plain

VARIANT = "variant"


def build_mix(report: Report, extras: ReportExtras) -> dict[str, Any] | None:
    """Returns the stages with their measured options; None where there is nothing to choose.

    A stage of `extras.options` offers these; the others offer what each variant measured.
    """
    given: dict[str, list[StageOption]] = {}
    for option in extras.options:
        given.setdefault(option.stage, []).append(option)
    names = list(dict.fromkeys(stage["name"] for v in report.variants for stage in v.stages))
    names += [name for name in given if name not in names]
    stages = [_stage(report, name, given.get(name)) for name in names]
    stages = [stage for stage in stages if stage["options"]]
    if not any(len(stage["options"]) > 1 for stage in stages):
        return None
    return {
        "deadline": report.frame["deadline_ms"],
        "stages": stages,
        "frames": {
            plain(variant.name): {
                "p50": variant.details["service_ms"]["p50"],
                "p99": variant.details["service_ms"]["p99"],
            }
            for variant in report.variants
        },
    }


def to_script(mix: dict[str, Any]) -> str:
    """Returns JSON that cannot end the script element that it stands in."""
    return json.dumps(mix, separators=(",", ":")).replace("<", "\\u003c")


def _stage(report: Report, name: str, given: list[StageOption] | None) -> dict[str, Any]:
    options = given if given is not None else _of_variants(report, name)
    controls: dict[str, list[str]] = {}
    for option in options:
        for key, value in option.settings.items():
            values = controls.setdefault(plain(key), [])
            if plain(value) not in values:
                values.append(plain(value))
    for values in controls.values():
        values.sort(key="off".__eq__)
    budgets = [s["budget_ms"] for v in report.variants for s in v.stages if s["name"] == name]
    return {
        "name": plain(name),
        "budget": next((budget for budget in budgets if budget), None),
        "controls": {key: values for key, values in controls.items() if len(values) > 1},
        "options": [
            {
                "settings": {plain(k): plain(v) for k, v in option.settings.items()},
                "p50": option.p50_ms,
                "p99": option.p99_ms,
                "n": option.n,
                "quantiles": list(option.quantiles_ms),
            }
            for option in options
        ],
    }


def _of_variants(report: Report, name: str) -> list[StageOption]:
    return [
        StageOption.from_samples(name, {VARIANT: variant.name}, variant.run.stage_ns(name))
        for variant in report.variants
        if name in variant.run.stage_names and not variant.run.dropped.all()
    ]
