"""The waterfall one can try: per stage, which of its measured variants makes up the frame."""

import json
from typing import Any

from latency_budget.report import Report, Variant
from latency_budget.report_extras import WHOLE_FRAME, ReportExtras, StageOption
from latency_budget.reports.text import format_ms, format_value, plain

VARIANT = "variant"
_USUAL = {"on", "shared"}
"""Settings that every variant has unless it says otherwise."""


def build_mix(report: Report, extras: ReportExtras) -> dict[str, Any] | None:
    """Returns the stages with their measured options; None where there is nothing to choose.

    A stage of `extras.options` offers these; the others offer what each variant measured. A setting
    of several stages is one choice for all of them; which variant a stage is of, is one per stage.
    """
    given: dict[str, list[StageOption]] = {}
    for option in extras.options:
        given.setdefault(option.stage, []).append(option)
    wholes = given.pop(WHOLE_FRAME, [])
    names = list(dict.fromkeys(stage["name"] for v in report.variants for stage in v.stages))
    names += [name for name in given if name not in names]
    stages = [_stage(report, name, given.get(name)) for name in names]
    stages = [stage for stage in stages if stage["options"]]
    if not any(len(stage["options"]) > 1 for stage in stages):
        return None
    return {
        "deadline": report.frame["deadline_ms"],
        "stages": stages,
        "choices": _choices(stages),
        "wholes": [
            *(_whole(option, report) for option in wholes),
            *(_whole_variant(variant) for variant in report.variants),
        ],
        "quality": {
            plain(variant.name): {
                plain(head): f"{plain(found['metric'])} {format_value(found['value'])}"
                for head, found in variant.heads.items()
            }
            for variant in report.variants
        },
    }


def to_script(mix: dict[str, Any]) -> str:
    """Returns JSON that cannot end the script element that it stands in."""
    return json.dumps(mix, separators=(",", ":")).replace("<", "\\u003c")


def _choices(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the form's groups of buttons: name, legend, values and the one that ships."""
    found: dict[str, dict[str, Any]] = {}
    for index, stage in enumerate(stages):
        for key, values in stage["controls"].items():
            name = f"mix-{index if key == VARIANT else 'all'}-{key}"
            legend = stage["name"] if key == VARIANT else f"{stage['name']}, {key}"
            if name in found:
                found[name]["legend"] = key
            shipped = stage["options"][-1]["settings"][key]
            new = {"name": name, "legend": legend, "values": [], "shipped": shipped}
            choice = found.setdefault(name, new)
            choice["values"] += [value for value in values if value not in choice["values"]]
    return list(found.values())


def _whole(option: StageOption, report: Report) -> dict[str, Any]:
    """A frame measured as a whole, and the variant that is the same frame if there is one."""
    words = set(option.settings.values()) - _USUAL
    same = next((variant for variant in report.variants if words == {variant.name}), None)
    return {
        "settings": _plain_settings(option),
        "p50": option.p50_ms,
        "p99": option.p99_ms,
        "text": f"{option.n} frames back to back",
        "also": _describe(same, report) if same is not None else "",
    }


def _whole_variant(variant: Variant) -> dict[str, Any]:
    name, service = plain(variant.name), variant.details["service_ms"]
    return {
        "settings": {VARIANT: name},
        "p50": service["p50"],
        "p99": service["p99"],
        "text": name,
        "also": "",
    }


def _describe(variant: Variant, report: Report) -> str:
    frame, mode = variant.frame_ms, variant.details["mode"]
    way = "back to back" if mode == "closed" else f"at {report.frame['rate_hz']:g} Hz"
    return (
        f"{plain(variant.name)} above, {frame['n']} frames {way}: "
        f"P50 {format_ms(frame['p50'], 1)}, P99 {format_ms(frame['p99'], 1)} ms."
    )


def _plain_settings(option: StageOption) -> dict[str, str]:
    return {plain(key): plain(value) for key, value in option.settings.items()}


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
                "settings": _plain_settings(option),
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
