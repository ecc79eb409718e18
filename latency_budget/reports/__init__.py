"""Reports: one file per format; all are made from the same `Report`."""

from collections.abc import Callable
from pathlib import Path

from latency_budget.report import Report
from latency_budget.reports import html, json_report, junit, markdown

REPORTS: dict[str, Callable[[Report, Path], Path]] = {
    "json": json_report.write,
    "md": markdown.write,
    "html": html.write,
    "junit": junit.write,
}


def write_report(report: Report, folder: Path | str) -> dict[str, Path]:
    """Writes every format into `folder`, which is made if it is missing.

    Returns:
        the written file per format: report.json, report.md, report.html and report.xml.

    Raises:
        InputError: the folder cannot be written.
    """
    return {name: write(report, Path(folder)) for name, write in REPORTS.items()}
