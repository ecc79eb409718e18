"""The report in a terminal: one line with the verdict, the variants side by side, the gates."""

from typing import TYPE_CHECKING

from artifacts.log_lines import defuse
from latency_budget.report import Report
from latency_budget.reports.table import build_rows, head_metrics, head_value
from latency_budget.reports.text import (
    SYMBOLS,
    VERDICT_SENTENCES,
    format_change,
    format_ms,
    format_ratio,
    plain,
)

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow", "invalid": "magenta"}


def headline(report: Report) -> str:
    """Returns the result in one line."""
    candidate, word = report.variants[-1], report.verdict.value
    sentence = VERDICT_SENTENCES[word].format(
        name=plain(candidate.name),
        what="frame" if candidate.details.get("is_whole_frame", True) else "part of the frame",
        limit=f"{report.frame['deadline_ms']:g}",
    )
    parts = [f"{word.upper()}: {sentence}"]
    bound_ms = candidate.details.get("p99_upper_ms")
    if bound_ms is not None and word != "invalid":
        parts.append(f"P99 at most {bound_ms:.2f} ms at 95 % confidence")
    if word != "pass":
        worst = [plain(gate.name) for gate in report.gates if gate.verdict is report.verdict]
        parts.append(f"because of {', '.join(worst)}")
    unfit = [plain(gate.name) for gate in report.gates if gate.is_only_reported]
    if unfit and word in ("fail", "inconclusive"):
        parts.append(f"the machine was unfit and may be the cause ({', '.join(unfit)})")
    return "; ".join(parts)


def describe_gain(report: Report) -> str:
    """Returns what the candidate gained and lost against the first variant, empty if alone.

    The quality of every head stands in the same sentence as the speed.
    """
    reference, candidate = report.variants[0], report.variants[-1]
    if reference is candidate:
        return ""
    before, after = reference.network_ms, candidate.network_ms
    what = "network" if before and after else "frame"
    p50_before = (before if before and after else reference.frame_ms)["p50"]
    p50_after = (after if before and after else candidate.frame_ms)["p50"]
    name = plain(candidate.name)
    parts = [
        f"Against {plain(reference.name)}, the {what} of {name} takes {format_ms(p50_after)} "
        f"instead of {format_ms(p50_before)} ms (P50, {format_ratio(p50_before, p50_after)} faster)"
    ]
    if reference.size_bytes and candidate.size_bytes:
        ratio = format_ratio(reference.size_bytes, candidate.size_bytes)
        parts.append(f"its file is {ratio} smaller")
    for head, metric in head_metrics(report):
        values = [head_value(variant, head, metric) for variant in (reference, candidate)]
        change = format_change(*values)
        parts.append(f"{plain(head)} {plain(metric)} {change or 'not measured'}")
    if not head_metrics(report):
        parts.append("no head's quality was measured")
    return ", ".join(parts)


def print_report(report: Report, console: "Console") -> None:
    """Prints the report to a rich console; all text is taken literally, also by a CI server."""
    from rich.text import Text

    with console.capture() as captured:
        _print_parts(report, console)
    console.print(Text.from_ansi(defuse(captured.get().removesuffix("\n"))), soft_wrap=True)


def _print_parts(report: Report, console: "Console") -> None:
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
    gain = describe_gain(report)
    if gain:
        console.print(Text(gain), soft_wrap=True)
    console.print(Text(headline(report), style=style), soft_wrap=True)


def _stage_table(report: Report) -> "object | None":
    from rich.table import Table
    from rich.text import Text

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
