"""The report in a terminal: one line with the verdict, the variants side by side, the gates."""

from typing import TYPE_CHECKING

from latency_budget.report import Report
from latency_budget.reports.table import build_rows
from latency_budget.reports.text import SYMBOLS, VERDICT_MEANING, plain

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow", "invalid": "magenta"}


def headline(report: Report) -> str:
    """Returns the result in one line."""
    candidate = report.variants[-1]
    deadline_ms = report.frame["deadline_ms"]
    bound_ms = candidate.details.get("p99_upper_ms")
    what = "frame" if candidate.details.get("is_whole_frame", True) else "measured part"
    parts = [
        f"{report.verdict.value.upper()}: {plain(candidate.name)} "
        f"{VERDICT_MEANING[report.verdict.value]} of {deadline_ms:g} ms for the {what}"
    ]
    if bound_ms is not None:
        parts.append(f"P99 at most {bound_ms:.2f} ms at 95 % confidence")
    worst = [gate.name for gate in report.gates if gate.verdict is report.verdict]
    if report.verdict.value != "pass":
        parts.append(f"because of: {', '.join(plain(name) for name in worst)}")
    return "; ".join(parts)


def print_report(report: Report, console: "Console") -> None:
    """Prints the report to a rich console; all text is taken literally."""
    from rich.table import Table
    from rich.text import Text

    figures = Table(box=None, pad_edge=False, header_style="bold")
    figures.add_column("")
    for variant in report.variants:
        figures.add_column(Text(plain(variant.name)), justify="right")
    for row in build_rows(report):
        figures.add_row(*[Text(cell) for cell in row])
    stages = _stage_table(report)
    gates = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("gate", "verdict", "evidence"):
        gates.add_column(title, overflow="fold")
    for gate in report.gates:
        word = gate.verdict.value
        gates.add_row(
            Text(plain(gate.name)),
            Text(f"{SYMBOLS[word]} {word}", style=_STYLES[word]),
            Text(plain(gate.detail)),
        )
    for part in (figures, stages, gates):
        if part is not None:
            console.print(part)
            console.print()
    for note in report.notes:
        console.print(Text(plain(note)), soft_wrap=True)
    style = f"bold {_STYLES[report.verdict.value]}"
    console.print(Text(headline(report), style=style), soft_wrap=True)


def _stage_table(report: Report) -> "object | None":
    from rich.table import Table
    from rich.text import Text

    from latency_budget.reports.text import format_ms

    if not any(len(variant.stages) > 1 for variant in report.variants):
        return None
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage P50 / P99, ms")
    table.add_column("budget", justify="right")
    for variant in report.variants:
        table.add_column(Text(plain(variant.name)), justify="right")
    for name in dict.fromkeys(s["name"] for v in report.variants for s in v.stages):
        found = [{s["name"]: s for s in v.stages}.get(name, {}) for v in report.variants]
        budget = next((s["budget_ms"] for s in found if s.get("budget_ms")), None)
        cells = [f"{format_ms(s.get('p50'))} / {format_ms(s.get('p99'))}" for s in found]
        table.add_row(Text(plain(name)), format_ms(budget), *[Text(cell) for cell in cells])
    return table
