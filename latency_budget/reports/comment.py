"""comment.md: a pull request's comment, with each stage beside that of the base."""

from typing import Any

from latency_budget.report import Report, Variant
from latency_budget.reports.charts import MOST_DEADLINES, is_waiting
from latency_budget.reports.markdown import escape, name_digest, table_row
from latency_budget.reports.terminal import headline
from latency_budget.reports.text import SYMBOLS, format_ms, plain

MARKER = "<!-- framefit budget-check -->"
"""First line of every comment, by which a later run finds and replaces it."""
_WIDTH = 48


def render_comment(report: Report, base: Report | None = None) -> str:
    """Returns the comment as GitHub-flavoured Markdown.

    Args:
        report: the pull request's.
        base: the base branch's; measured at another time, so that only the gate `no slower than
            before` judges the difference.
    """
    candidate = report.variants[-1]
    reference = base.variants[-1] if base else None
    lines = [
        MARKER,
        f"### {SYMBOLS[report.verdict.value]} {escape(headline(report))}",
        "",
        *_waterfall(report, candidate),
        "",
        *_stages(candidate, reference),
    ]
    bad = [gate for gate in report.gates if gate.verdict.value != "pass"]
    if bad:
        lines += ["", table_row(["gate", "verdict", "evidence"]), "|---|---|---|"]
        lines += [table_row([gate.name, gate.verdict.value, gate.detail]) for gate in bad]
    missed = candidate.details.get("missed") or {}
    if missed.get("count"):
        stages = ", ".join(f"{name} {count}" for name, count in missed["by_stage"].items())
        causes = ", ".join(f"{name} {count}" for name, count in missed["by_cause"].items())
        lines += ["", escape(f"Missed frames by stage: {stages}. By cause: {causes}.")]
    if candidate.sha256:
        lines += ["", name_digest(candidate)]
    if reference is not None:
        lines += ["", "The base was measured at another time: read its column as a hint."]
    return "\n".join(lines) + "\n"


def _waterfall(report: Report, variant: Variant) -> list[str]:
    """Bars of text against the deadline, one line per stage; longer ones than fit are cut."""
    deadline = float(report.frame["deadline_ms"])
    stages = [stage for stage in variant.stages if stage["p50"] is not None]
    wholes = _wholes(variant, len(stages))
    ends = [deadline * 1.1, sum(stage["p50"] for stage in stages)]
    ends += [whole["p99"] or whole["p50"] for whole in wholes]
    scale = _WIDTH / min(max(ends), deadline * MOST_DEADLINES)
    names = ["deadline", *(plain(row["name"]) for row in (*stages, *wholes))]
    width = max(len(name) for name in names)
    lines, start = ["```text"], 0.0
    for stage in stages:
        lines.append(_bar(stage, start, scale, width))
        start += stage["p50"]
    lines += [_bar(whole, 0.0, scale, width) for whole in wholes]
    mark = " " * max(0, round(deadline * scale)) + "│"
    return [*lines, f"{'deadline':<{width}} {mark} {deadline:g} ms", "```"]


def _wholes(variant: Variant, stages: int) -> list[dict[str, Any]]:
    """Returns the frame as it is judged, and all stages without its wait where that matters."""
    rows = [{"name": "frame", **variant.frame_ms}]
    if is_waiting(variant):
        rows[0]["name"] = "with its wait"
        if stages > 1:
            rows.insert(0, {"name": "all stages", **variant.details["service_ms"]})
    elif stages == 1:
        return []
    return [row for row in rows if row["p50"] is not None]


def _bar(figures: dict[str, Any], start: float, scale: float, width: int) -> str:
    p50 = float(figures["p50"])
    p99 = p50 if figures["p99"] is None else float(figures["p99"])
    begin, middle, end = (
        min(_WIDTH, round(value * scale)) for value in (start, start + p50, start + p99)
    )
    bar = " " * begin + "█" * max(1, middle - begin) + "░" * max(0, end - middle)
    name = plain(figures["name"]).replace("`", "'")
    return f"{name:<{width}} {bar} {format_ms(p50, 1)} / {format_ms(figures['p99'], 1)} ms"


def _stages(candidate: Variant, reference: Variant | None) -> list[str]:
    rows = [*candidate.stages, {"name": "frame", **candidate.frame_ms, "budget_ms": None}]
    before: dict[str, Any] = {}
    if reference is not None:
        before = {stage["name"]: stage for stage in reference.stages}
        before["frame"] = reference.frame_ms
    title = ["P50 / P99, ms", "budget", "base", "this", "P50", "P99"]
    lines = [table_row(title), table_row(["---"] + ["---:"] * 5, literal=True)]
    for row in rows:
        old = before.get(row["name"], {})
        lines.append(
            table_row(
                [
                    row["name"],
                    format_ms(row.get("budget_ms")),
                    _pair(old),
                    _pair(row),
                    _change(old.get("p50"), row["p50"]),
                    _change(old.get("p99"), row["p99"]),
                ]
            )
        )
    return lines


def _pair(figures: dict[str, Any]) -> str:
    return f"{format_ms(figures.get('p50'))} / {format_ms(figures.get('p99'))}"


def _change(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return "–"
    return f"{(after / before - 1) * 100:+.1f} %".replace("-", "−")
