"""report.md: the same figures for a pull request or a step summary."""

import html
from pathlib import Path

from artifacts.atomic import write_text
from latency_budget.report import Report, Variant
from latency_budget.reports.table import build_rows, describe_environment
from latency_budget.reports.terminal import describe_gain, headline
from latency_budget.reports.text import SYMBOLS, format_ms, plain

FILE_NAME = "report.md"
_SPECIAL = "\\`*_{}[]<>#|~&@"


def write(report: Report, folder: Path) -> Path:
    """Writes report.md."""
    path = folder / FILE_NAME
    write_text(path, render(report))
    return path


def render(report: Report) -> str:
    """Returns the report as GitHub-flavoured Markdown; names cannot break out of their cells."""
    names = [variant.name for variant in report.variants]
    lines = [
        f"## {SYMBOLS[report.verdict.value]} {escape(headline(report))}",
        "",
        *([f"{escape(describe_gain(report))}.", ""] if len(names) > 1 else []),
        table_row(["", *names]),
        table_row(["---"] + ["---:"] * len(names), literal=True),
    ]
    lines += [table_row(row) for row in build_rows(report)]
    lines += _stage_lines(report)
    lines += ["", "### Gates", "", table_row(["gate", "verdict", "evidence"]), "|---|---|---|"]
    for gate in report.gates:
        word = gate.verdict.value
        lines.append(table_row([gate.name, f"{SYMBOLS[word]} {word}", gate.detail]))
    checks = report.environment.get("checks", [])
    if checks:
        title = html.escape(f"Machine: {plain(describe_environment(report))}")
        lines += ["", f"<details><summary>{title}</summary>", "", "| | | |", "|---|---|---|"]
        lines += [table_row([check["name"], check["verdict"], check["detail"]]) for check in checks]
        lines += ["", "</details>"]
    lines += [f"\n{escape(note)}" for note in report.notes]
    lines += [f"\n{name_digest(variant)}" for variant in report.variants if variant.sha256]
    return "\n".join(lines) + "\n"


def escape(text: object) -> str:
    """Returns text that Markdown shows as it is, on one line, without mentions or HTML."""
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in plain(text)).replace("\\@", "&#64;")


def name_digest(variant: Variant) -> str:
    """Returns which file's digest was measured, as a sentence."""
    return f"{_quote(variant.sha256)} is the SHA-256 of {escape(variant.artifact)}."


def _quote(text: str) -> str:
    """Returns text as Markdown's code, which it cannot end."""
    return f"`{plain(text).replace('`', chr(39))}`"


def table_row(cells: list[str], *, literal: bool = False) -> str:
    """Returns one row of a table; names cannot break out of their cells."""
    return "| " + " | ".join(cell if literal else escape(cell) for cell in cells) + " |"


def _stage_lines(report: Report) -> list[str]:
    names = list(dict.fromkeys(s["name"] for v in report.variants for s in v.stages))
    if len(names) < 2:
        return []
    title = ["stage P50 / P99, ms", "budget", *[variant.name for variant in report.variants]]
    lines = ["", table_row(title), table_row(["---"] + ["---:"] * (len(title) - 1), literal=True)]
    for name in names:
        found = [{s["name"]: s for s in v.stages}.get(name, {}) for v in report.variants]
        budget = next((s["budget_ms"] for s in found if s.get("budget_ms")), None)
        cells = [f"{format_ms(s.get('p50'))} / {format_ms(s.get('p99'))}" for s in found]
        lines.append(table_row([name, format_ms(budget), *cells]))
    return lines
