"""The work of `budget-check report`: other formats, beside a base, a history and a roofline."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from artifacts.atomic import only_writer, write_text
from artifacts.errors import FramefitError, InputError, first_line
from artifacts.file_content import read_text
from artifacts.onnx_file import has_weights_beside
from artifacts.strict_json import read_json
from engines.runtimes import SessionSettings
from framefit.hang_watch import HangWatch
from framefit.why_job import known_targets, profile_network, roofline_network
from latency_budget.artifact_match import Match, match_artifact, match_limits
from latency_budget.budget import Budget
from latency_budget.report import Report
from latency_budget.report_extras import (
    HistoryPoint,
    ReportExtras,
    RooflinePoint,
    RooflineView,
    StageOption,
)
from latency_budget.reports import write_report
from latency_budget.reports.comment import render_comment
from latency_budget.reports.github import append_step_summary, list_annotations
from latency_budget.reports.read_report import read_report

COMMENT = "comment.md"
PROFILED_RUNS = 20


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What to make of a report.json.

    Attributes:
        out: folder for report.html, .md, .xml, .json and comment.md.
        base: report.json of the base branch.
        history: a `.jsonl` of earlier verdicts; this one is appended, once per label.
        label: this verdict's name in the history, such as a commit.
        options: a JSON list of `StageOption.to_dict()`, for the toggles.
        model: a network to profile and place under this machine's roofline now.
        step_summary: file that GITHUB_STEP_SUMMARY names.
    """

    out: Path | None = None
    base: Path | None = None
    history: Path | None = None
    label: str = ""
    options: Path | None = None
    model: Path | None = None
    step_summary: Path | None = None


def make_reports(path: Path, options: ReportOptions) -> tuple[Report, list[str]]:
    """Writes what the options ask for.

    Returns:
        the report, and its GitHub annotations.

    Raises:
        InputError: a file cannot be read or written, or is of another kind.
    """
    report = read_report(path)
    base = read_report(options.base) if options.base else None
    extras = ReportExtras(
        options=_read_options(options.options) if options.options else (),
        roofline=view_roofline(options.model) if options.model else None,
    )
    read = " or ".join(str(one) for one in (path, options.base) if one is not None)
    with _told_as_bad_input(read):
        comment = render_comment(report, base)
        past = _continue_history(options.history, options.label, report) if options.history else ()
        extras = replace(extras, history=past)
        report = replace(report, extras=extras)
        annotations = list_annotations(report)
        if options.out is not None:
            write_report(report, options.out)
            write_text(options.out / COMMENT, comment)
    if options.history is not None:
        extend_history(options.history, options.label, report)
    if options.step_summary is not None:
        append_step_summary(report, options.step_summary, comment)
    return report, annotations


@contextmanager
def _told_as_bad_input(read: str) -> Iterator[None]:
    """Figures that a page shows may be missing or of another kind in a file that others wrote."""
    from jinja2 import TemplateError

    try:
        yield
    except FramefitError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TemplateError,
        TypeError,
        ValueError,
    ) as error:
        raise InputError(
            f"{read} cannot be shown: {type(error).__name__}: {first_line(error)}",
            "a report.json of this version",
            "measure again, or use the version that wrote it",
        ) from error


def verify_artifact(
    report_file: Path,
    artifact: Path,
    budget_file: Path | None = None,
    tier: str | None = None,
    mode: str | None = None,
) -> Match:
    """Says whether an artifact may ship on a report.

    Args:
        report_file: a report.json.
        artifact: the file that is to ship.
        budget_file: the budget that it must have been judged by; None for any.
        tier: the budget's tier that it must have been judged with; None for any.
        mode: the budget's driving mode that it must have been judged for.

    Raises:
        InputError: a file or a name is wrong.
    """
    if budget_file is None and (tier is not None or mode is not None):
        raise InputError("--tier or --mode was given without --budget", "the file that has them")
    report = read_report(report_file)
    found = match_artifact(report, artifact)
    if found.is_accepted and _has_weights_beside(artifact):
        return Match(
            False,
            f"{artifact} has weights in files beside it, which the measured digest does not cover; "
            "save it with all of its weights and measure that",
        )
    if budget_file is None or not found.is_accepted:
        return found
    budget = Budget.load(budget_file)
    evidence = budget.tier(tier) if tier is not None else None
    limits = match_limits(report, budget, evidence, mode=mode)
    if not limits.is_accepted:
        return Match(False, f"{artifact} is the measured file and passed, but {limits.detail}")
    return Match(True, f"{found.detail}; {limits.detail}")


def _has_weights_beside(path: Path) -> bool:
    """Returns whether a network keeps weights in other files; what is no network has none."""
    try:
        return has_weights_beside(path)
    except InputError:
        return False


def view_roofline(model: Path, settings: SessionSettings | None = None) -> RooflineView:
    """Profiles a network on this machine and places its layers under the measured roofline."""
    settings = settings or SessionSettings()
    with HangWatch() as watch:
        times = profile_network(model, None, settings, runs=PROFILED_RUNS, watch=watch)
    found = roofline_network(model, settings, targets=known_targets(), is_measured=True)
    machine = found.machine
    if machine is None or not machine.bandwidth or found.walls is None:
        raise InputError(f"{model} could not be placed under a roofline")
    points = [
        RooflinePoint(
            name=owned.layer.name,
            owner=owned.owner,
            precision=owned.precision,
            intensity=owned.operations / owned.moved_bytes,
            operations_per_s=owned.operations_per_s,
            ms=owned.layer.median_s * 1e3,
        )
        for owned in times.layers
        if owned.operations and owned.operations_per_s and owned.moved_bytes
    ]
    return RooflineView(
        machine=f"{machine.name}, measured",
        peaks=machine.peaks,
        bandwidth=machine.bandwidth,
        points=tuple(points),
        wall=found.walls.wall,
        advice=found.advice,
        predictions=tuple(prediction.to_dict() for prediction in found.predictions),
        owners_ms={owner: value * 1e3 for owner, value in times.seconds.items()},
        network=model.name,
        runs=PROFILED_RUNS,
    )


def _read_options(path: Path) -> tuple[StageOption, ...]:
    try:
        content = read_json(read_text(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", "a list of stage options") from error
    if not isinstance(content, list):
        raise InputError(f"{path} is no list", "a list of stage options")
    return tuple(StageOption.from_dict(item) for item in content)


def extend_history(path: Path, label: str, report: Report) -> tuple[HistoryPoint, ...]:
    """Appends this verdict to the history; a label that is there already is replaced.

    Jobs that end at the same time wait for each other, so that none loses the other's line.
    """
    with only_writer(path.resolve()):
        points = _continue_history(path, label, report)
        _write_history(path, points)
    return points


def _continue_history(path: Path, label: str, report: Report) -> tuple[HistoryPoint, ...]:
    points = [point for point in _read_history(path) if point.label != label or not label]
    frame = report.variants[-1].frame_ms
    points.append(
        HistoryPoint(
            label=label or f"#{len(points) + 1}",
            p50_ms=frame["p50"],
            p99_ms=frame["p99"],
            verdict=report.verdict.value,
            created_s=report.created_s,
        )
    )
    return tuple(points)


def _write_history(path: Path, points: Iterable[HistoryPoint]) -> None:
    """Writes it where a link points: to a folder that outlives the job."""
    write_text(path.resolve(), "".join(f"{json.dumps(vars(point))}\n" for point in points))


def _read_history(path: Path) -> list[HistoryPoint]:
    if not path.exists():
        return []
    try:
        lines = read_text(path).splitlines()
        return [_point(json.loads(line)) for line in lines if line.strip()]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{path} is not a history: {error!r}", "a .jsonl that budget-check report wrote"
        ) from error


def _point(values: Mapping[str, Any]) -> HistoryPoint:
    return HistoryPoint(
        label=str(values["label"]),
        p50_ms=None if values["p50_ms"] is None else float(values["p50_ms"]),
        p99_ms=None if values["p99_ms"] is None else float(values["p99_ms"]),
        verdict=str(values["verdict"]),
        created_s=int(values["created_s"]),
    )
