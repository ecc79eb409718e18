"""Reports: one file per format; all are made from the same `Report`."""

from collections.abc import Callable
from pathlib import Path

from latency_budget.report import Report
from latency_budget.reports.html import write as write_html
from latency_budget.reports.json_report import write as write_json
from latency_budget.reports.junit import write as write_junit
from latency_budget.reports.markdown import write as write_markdown

REPORTS: dict[str, Callable[[Report, Path], Path]] = {
    "json": write_json,
    "md": write_markdown,
    "html": write_html,
    "junit": write_junit,
}


def write_report(report: Report, folder: Path | str) -> dict[str, Path]:
    """Writes every format into `folder`, which is made if it is missing.

    Returns:
        the written file per format: report.json, report.md, report.html and report.xml.

    Raises:
        InputError: the folder cannot be written.
    """
    return {name: write(report, Path(folder)) for name, write in REPORTS.items()}
