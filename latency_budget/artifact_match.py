"""A verdict is about one file: `budget-check verify` refuses any other."""

from dataclasses import dataclass
from pathlib import Path

from artifacts.digest import sha256_file
from artifacts.errors import InputError
from latency_budget.report import Report


@dataclass(frozen=True)
class Match:
    """Whether an artifact may ship on a report.

    Attributes:
        is_accepted: it is the measured file, and the verdict on it is pass.
        detail: why, in one line.
    """

    is_accepted: bool
    detail: str


def match_artifact(report: Report, artifact: Path) -> Match:
    """Compares an artifact with the file that a report's verdict is about.

    The verdict is that of the last variant; an earlier one, such as the float reference, was only
    measured beside it.

    Raises:
        InputError: the artifact cannot be read, or the report names no digest.
    """
    candidate = report.variants[-1]
    if not candidate.sha256:
        raise InputError(
            "the report names no digest: its samples were recorded elsewhere",
            "a report of a measured artifact",
            "run budget-check with the model itself",
        )
    if not artifact.is_file():
        raise InputError(f"{artifact} does not exist", "the artifact to ship")
    found = sha256_file(artifact)
    if found != candidate.sha256:
        others = [v.name for v in report.variants[:-1] if v.sha256 == found]
        what = f"it is '{others[0]}', which was not judged" if others else "it was not measured"
        return Match(
            False,
            f"{artifact} has the SHA-256 {found}, the verdict is about {candidate.sha256}"
            f" ({candidate.artifact}): {what}",
        )
    if report.verdict.value != "pass":
        return Match(False, f"{artifact} is the measured file, but its verdict is"
                     f" {report.verdict.value}")  # fmt: skip
    return Match(True, f"{artifact} is the measured file (SHA-256 {found}) and it passed")
