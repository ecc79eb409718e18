"""report.xml: one JUnit test case per gate, for CI servers.

Inconclusive is a failure and not `skipped`, which many servers paint green.
"""

from pathlib import Path
from xml.etree import ElementTree

from artifacts.atomic import write_bytes
from latency_budget.report import Report
from latency_budget.reports.text import plain

FILE_NAME = "report.xml"


def write(report: Report, folder: Path) -> Path:
    """Writes report.xml."""
    path = folder / FILE_NAME
    write_bytes(path, render(report))
    return path


def render(report: Report) -> bytes:
    """Returns the gates as JUnit XML; names are escaped, characters XML cannot hold replaced."""
    words = [gate.verdict.value for gate in report.gates]
    suite = ElementTree.Element(
        "testsuite",
        name="framefit budget",
        tests=str(len(words)),
        failures=str(sum(word in ("fail", "inconclusive") for word in words)),
        errors=str(words.count("invalid")),
    )
    for gate in report.gates:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_legal(f"budget.{report.variants[-1].name}"),
            name=_legal(gate.name),
        )
        if gate.verdict.value != "pass":
            kind = "error" if gate.verdict.value == "invalid" else "failure"
            ElementTree.SubElement(case, kind, type=gate.verdict.value, message=_legal(gate.detail))
    content: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return content


def _legal(text: str) -> str:
    return "".join("�" if ord(c) in (0xFFFE, 0xFFFF) else c for c in plain(text))
