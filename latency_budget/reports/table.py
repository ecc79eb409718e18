"""The rows of variants side by side, shared by the terminal and Markdown reports.

Speed, size and every head's quality are rows of one table, so none is shown without the others.
"""

from typing import Any

from latency_budget.head_metric import is_lower_better
from latency_budget.report import Report, Variant
from latency_budget.reports.text import (
    format_change,
    format_ms,
    format_ratio,
    format_size,
    format_value,
    plain,
)


def head_metrics(report: Report) -> list[tuple[str, str]]:
    """Returns (head, metric) of every head that some variant has."""
    found = [
        (head, str(values.get("metric", "")))
        for variant in report.variants
        for head, values in variant.heads.items()
    ]
    return list(dict.fromkeys(found))


def head_value(variant: Variant, head: str, metric: str) -> Any:
    """Returns a variant's value of one head's metric, None where it has none."""
    values = variant.heads.get(head, {})
    return values.get("value") if values.get("metric", "") == metric else None


def describe_environment(report: Report) -> str:
    """Returns the machine's verdict, and whether it counts: a pass beside it needs the reason."""
    if not report.environment:
        return "not observed"
    word = str(report.environment["verdict"])
    gate = next((item for item in report.gates if item.name == "environment"), None)
    if gate is not None and gate.is_only_reported:
        return f"{word}, reported only"
    return word


def build_rows(report: Report) -> list[list[str]]:
    """Returns the table: one row per figure, its name first, then one cell per variant."""
    variants = report.variants
    reference = variants[0]
    rows = [
        ["verdict", *[(v.verdict.value if v.verdict else "–") for v in variants]],
        ["frame P50, ms", *[format_ms(v.frame_ms["p50"]) for v in variants]],
        ["frame P99, ms", *[format_ms(v.frame_ms["p99"]) for v in variants]],
        [
            "frame P99 at most (95 %), ms",
            *[format_ms(v.details.get("p99_upper_ms")) for v in variants],
        ],
        ["misses", *[f"{v.frame_ms['misses']} of {v.frame_ms['n']}" for v in variants]],
    ]
    if any(variant.network_ms for variant in variants):
        rows.append(["network P50, ms", *[_with_speedup(reference, v) for v in variants]])
    if any(variant.size_bytes for variant in variants):
        rows.append(["file", *[format_size(v.size_bytes) for v in variants]])
    for head, metric in head_metrics(report):
        base = head_value(reference, head, metric)
        cells = []
        for variant in variants:
            value = head_value(variant, head, metric)
            change = format_change(base, value) if variant is not reference else ""
            cells.append(f"{format_value(value)}{f' ({change})' if change else ''}")
        direction = " (lower is better)" if _is_lower_better(report, head, metric) else ""
        rows.append([f"{plain(head)} {plain(metric)}{direction}", *cells])
    return rows


def _is_lower_better(report: Report, head: str, metric: str) -> bool | None:
    """Returns what the head's contract says; by the metric's name where there is none."""
    for variant in report.variants:
        values = variant.heads.get(head, {})
        if values.get("metric", "") == metric and "lower_is_better" in values:
            return bool(values["lower_is_better"])
    return is_lower_better(metric)


def _with_speedup(reference: Variant, variant: Variant) -> str:
    value = (variant.network_ms or {}).get("p50")
    base = (reference.network_ms or {}).get("p50")
    if variant is reference or value is None or base is None:
        return format_ms(value)
    return f"{format_ms(value)} ({format_ratio(base, value)} faster)"
