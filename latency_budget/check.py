"""The whole budget check: measure or read, judge, report."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from latency_budget.budget import Budget, HeadContract, Tier
from latency_budget.experiment import Experiment, Progress, run_experiment
from latency_budget.measure import MeasureSettings
from latency_budget.recorded import read_recorded
from latency_budget.report import Report, build_report, build_variant
from latency_budget.reports.json_report import read_baseline
from latency_budget.run import Run
from latency_budget.stage import Stage
from latency_budget.verdict import HeadQuality, judge


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """What a check is made with.

    Attributes:
        budget: the limits.
        tier: how much evidence, see `Tier`.
        policy: "fifo" or "latest".
        warmup_frames: before the timed frames, at the camera's rate.
        quality: a JSON file with each head's quality, see `read_quality`.
        baseline: a report.json to compare with.
    """

    budget: Budget
    tier: Tier
    policy: str = "fifo"
    warmup_frames: int = 90
    quality: Path | None = None
    baseline: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is checked.

    Attributes:
        name: shown in the report.
        artifact: the measured file, whose digest the report names.
        runtime: what runs it.
        session: what `Session.describe()` said.
    """

    name: str
    artifact: Path | None = None
    runtime: str = ""
    session: Mapping[str, Any] | None = field(default=None)


def check_stages_of(
    stages: list[Stage],
    frames: Iterable[Any],
    subject: Subject,
    settings: CheckSettings,
    *,
    is_whole_frame: bool,
    progress: Progress | None = None,
) -> Report:
    """Measures stages at the camera's rate and judges them.

    Args:
        stages: the frame's stages, or the part of them that is to be measured.
        frames: payloads of the first stage.
        subject: what is checked.
        settings: limits and evidence.
        is_whole_frame: False judges the part against what the other stages' budgets leave.
        progress: called with (what, done, total) between the parts of the measurement.

    Raises:
        InputError: the settings or files are wrong, or a stage raised an error.
    """
    files = _read_files(settings)
    measure = MeasureSettings(
        frames=settings.tier.frames,
        rate_hz=settings.budget.frame.rate_hz,
        warmup_frames=settings.warmup_frames,
        policy=settings.policy,
    )
    _part_of(settings.budget, tuple(stage.name for stage in stages), is_whole_frame)
    experiment = run_experiment(
        stages, frames, measure, is_whole_frame=is_whole_frame, progress=progress
    )
    return _conclude(experiment.paced, subject, settings, files, experiment)


def check_recorded(path: Path, settings: CheckSettings) -> Report:
    """Judges latencies of whole frames that were recorded elsewhere; see `read_recorded`."""
    files = _read_files(settings)
    run = read_recorded(path, rate_hz=settings.budget.frame.rate_hz)
    return _conclude(run, Subject(name=path.name), settings, files, None)


def read_quality(path: Path) -> dict[str, HeadQuality]:
    """Reads each head's quality.

    Args:
        path: JSON, `{"detection": {"metric": "mAP50", "reference": 0.67, "candidate": 0.66}}`.

    Raises:
        InputError: the file cannot be read or is of another form.
    """
    expected = '{"HEAD": {"metric": "mAP50", "reference": 0.67, "candidate": 0.66}}'
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(head): HeadQuality(
                str(values["metric"]), float(values["reference"]), float(values["candidate"])
            )
            for head, values in content.items()
        }
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", expected) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is not a quality file: {error!r}", expected) from error


_Files = tuple[dict[str, HeadQuality] | None, Any]


def _read_files(settings: CheckSettings) -> _Files:
    """Reads them before the measurement, so that a wrong one costs no time."""
    quality = read_quality(settings.quality) if settings.quality else None
    return quality, read_baseline(settings.baseline) if settings.baseline else None


def _part_of(budget: Budget, names: tuple[str, ...], is_whole_frame: bool) -> Budget:
    return budget if is_whole_frame else budget.for_part(names)


def _conclude(
    run: Run,
    subject: Subject,
    settings: CheckSettings,
    files: _Files,
    experiment: Experiment | None,
) -> Report:
    quality, baseline_ns = files
    whole = settings.budget
    budget = _part_of(whole, run.stage_names, run.is_whole_frame)
    notes: tuple[str, ...] = ()
    if not run.is_whole_frame:
        kept = {head: whole.heads[head] for head in whole.heads if quality and head in quality}
        notes = (_describe_part(whole, budget, run.stage_names, kept),)
        budget = replace(budget, heads=kept)
    judgement = judge(
        run,
        budget,
        tier=settings.tier,
        environment=experiment.environment if experiment else None,
        heads=quality,
        baseline_ns=baseline_ns,
        session=subject.session,
    )
    variant = build_variant(
        subject.name,
        run,
        budget,
        judgement=judgement,
        experiment=experiment,
        artifact=subject.artifact,
        runtime=subject.runtime,
        session=subject.session,
        heads={
            head: {"metric": values.metric, "value": values.candidate}
            for head, values in (quality or {}).items()
        },
    )
    return build_report(
        [variant],
        budget,
        judgement,
        environment=experiment.environment if experiment else None,
        notes=notes,
    )


def _describe_part(
    whole: Budget, part: Budget, names: tuple[str, ...], heads: Mapping[str, HeadContract]
) -> str:
    others = [name for name in whole.stages if name not in names]
    unjudged = [f"stage {name}" for name in others]
    unjudged += [f"head {name}" for name in whole.heads if name not in heads]
    note = f"Only {', '.join(names)} was measured, not the whole frame"
    if others:
        note += (
            f": its limit of {part.frame.deadline_ms:g} ms is what the other stages' budgets leave "
            f"of {whole.frame.deadline_ns / 1e6:g} ms"
        )
    return note + (f". Not judged: {', '.join(unjudged)}." if unjudged else ".")
