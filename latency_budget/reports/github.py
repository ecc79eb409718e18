"""GitHub: annotations as workflow commands, and the step summary.

A step may show 10 annotations of each kind, so the nine worst gates are written and one line that
counts the others. Names come from files that others wrote: a line break in one could forge a
command, so everything is escaped as the workflow commands ask for.
"""

from pathlib import Path

from artifacts.errors import InputError
from latency_budget.report import Report
from latency_budget.reports.markdown import render
from latency_budget.reports.text import plain

MOST_ANNOTATIONS = 9
SUMMARY_LIMIT_BYTES = 1_000_000
"""GitHub refuses step summaries above 1 MiB."""
_LEVELS = {"invalid": "error", "fail": "error", "inconclusive": "warning"}
_WORST_FIRST = tuple(_LEVELS)


def list_annotations(report: Report) -> list[str]:
    """Returns workflow commands for the gates that did not pass, the worst first, ten at most."""
    bad = [gate for gate in report.gates if gate.verdict.value in _LEVELS]
    bad.sort(key=lambda gate: _WORST_FIRST.index(gate.verdict.value))
    lines = [
        f"::{_LEVELS[gate.verdict.value]} title={_property(f'{gate.verdict.value}: {gate.name}')}"
        f"::{_message(gate.detail)}"
        for gate in bad[:MOST_ANNOTATIONS]
    ]
    more = len(bad) - MOST_ANNOTATIONS
    if more > 0:
        lines.append(f"::warning title=framefit::{more} more in the report")
    return lines


def append_step_summary(report: Report, path: Path, text: str | None = None) -> None:
    """Appends the report as Markdown to the step summary, cut where GitHub would refuse it.

    Args:
        report: the report.
        path: the file that GITHUB_STEP_SUMMARY names.
        text: other Markdown instead, such as a pull request's comment.

    Raises:
        InputError: the file cannot be written.
    """
    body = (text if text is not None else render(report)).encode("utf-8")
    try:
        room = SUMMARY_LIMIT_BYTES - (path.stat().st_size if path.exists() else 0)
        if len(body) > room:
            note = b"\n\nCut here: report.md has all of it.\n"
            body = body[: max(0, room - len(note))].rsplit(b"\n", 1)[0] + note
        with path.open("ab") as stream:
            stream.write(body)
    except OSError as error:
        raise InputError(
            f"cannot write the step summary {path}: {error.strerror or error}", "a writable file"
        ) from error


def _message(text: str) -> str:
    return plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
