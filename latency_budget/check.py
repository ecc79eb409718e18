"""The whole budget check: measure or read, judge, report."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from artifacts.digest import sha256_file
from artifacts.errors import InputError, UnsafeFileError
from latency_budget.baseline import Baseline, read_baseline
from latency_budget.budget import Budget
from latency_budget.budget_values import name_nearest
from latency_budget.check_notes import describe_limits, describe_part
from latency_budget.environment import Environment
from latency_budget.experiment import Experiment, Parts, Progress
from latency_budget.measure import MeasureSettings
from latency_budget.phase_sweep import describe_sweep, summarise_sweep, sweep_phases
from latency_budget.plan import Plan, begin_attempt, make_plan
from latency_budget.priority import Scheduling
from latency_budget.quality_file import describe_unread, read_quality, require_plausible
from latency_budget.recorded import read_recording, take_as_stage
from latency_budget.report import Report, build_report, build_variant
from latency_budget.reports.stored_samples import Circumstances
from latency_budget.restarts import ProcessSettings, measure_in_turns
from latency_budget.run import Run
from latency_budget.stage import FRAME_NAMES
from latency_budget.stop_rule import SequentialStop
from latency_budget.tiers import Tier
from latency_budget.verdict import HeadQuality, Verdict, judge, judge_measurement
from latency_budget.workload import Recipe, require_unchanged

INTERLEAVED_PAIRS = 5


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """What a check is made with.

    Attributes:
        budget: the limits.
        tier: how much evidence, see `Tier`.
        policy: "fifo" or "latest".
        warmup_frames: before the timed frames, at the camera's rate.
        phase_ns: shifts the arrivals.
        sweep_frames: frames of each setting of a phase sweep after the check; 0 for none.
        mode: a driving mode of the budget; None for every head.
        scheduling: processors and priority of the measuring processes.
        ledger: counts the attempts, see `plan.begin_attempt`; None counts nothing.
        quality: a JSON file with each head's quality, see `read_quality`.
        baseline: a report.json to compare with.
        timeout_s: see `ProcessSettings`.
    """

    budget: Budget
    tier: Tier
    policy: str = "fifo"
    warmup_frames: int = 90
    phase_ns: int = 0
    sweep_frames: int = 0
    mode: str | None = None
    scheduling: Scheduling = field(default_factory=Scheduling)
    ledger: Path | None = None
    quality: Path | None = None
    baseline: Path | None = None
    timeout_s: float = ProcessSettings.timeout_s


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is checked.

    Attributes:
        name: shown in the report.
        recipe: how a process makes the workload; None for recorded samples.
        stage_names: the stages of a part of a frame; empty for a whole frame.
        artifact: the file whose digest the report names.
        runtime: the runtime that was asked for, empty for any.
        against: recipe of a build that must not be faster, measured in turns.
    """

    name: str
    recipe: Recipe | None = None
    stage_names: tuple[str, ...] = ()
    artifact: Path | None = None
    runtime: str = ""
    against: Recipe | None = None


def check_subject(
    subject: Subject, settings: CheckSettings, progress: Progress | None = None
) -> Report:
    """Measures a subject at the camera's rate, in processes of its own, and judges it.

    Args:
        subject: what is checked.
        settings: limits and evidence.
        progress: called with (what, done, total) between the parts of the measurement.

    Raises:
        InputError: the settings or files are wrong, or a stage raised an error.
        UnsafeFileError: the artifact is not the file any more that was measured.
    """
    if subject.recipe is None:
        raise InputError(f"'{subject.name}' has no recipe", "something to measure")
    files = _read_files(settings)
    now = Circumstances(
        rate_hz=settings.budget.frame.rate_hz,
        is_whole_frame=not subject.stage_names,
        policy=settings.policy,
        mode=settings.mode or "",
    )
    _require_like(files, now, settings)
    sha256 = sha256_file(subject.artifact) if subject.artifact else ""
    budget = budget_of(settings)
    part = _part_of(budget, subject.stage_names, files[0]) if subject.stage_names else budget
    plan = begin_attempt(
        _make_plan(subject, settings, part),
        settings.ledger,
        is_judged=settings.tier.attempts is not None,
    )
    process = _process_settings(settings, part)
    recipes = {"": subject.recipe}
    if subject.against is not None:
        recipes = {"before": subject.against, "after": subject.recipe}
        process = replace(process, restarts=max(process.restarts, INTERLEAVED_PAIRS))
    measured = measure_in_turns(recipes, process, progress)
    reference = measured["before"] if subject.against is not None else None
    experiment = measured["after" if subject.against is not None else ""]
    if subject.artifact:
        require_unchanged(subject.artifact, sha256)
    report = _conclude(experiment.paced, subject, settings, files, experiment, plan, reference)
    if report.variants[-1].sha256 != sha256:
        raise UnsafeFileError(
            f"{subject.artifact} changed while it was measured", f"the digest {sha256[:12]}…"
        )
    if settings.sweep_frames:
        rows = sweep_phases(subject.recipe.bind(), process, settings.sweep_frames, progress)
        described = describe_sweep(rows)
        report.variants[-1].details["phase_sweep"] = described
        report = replace(report, notes=(*report.notes, summarise_sweep(described)))
    return report


def budget_of(settings: CheckSettings) -> Budget:
    """Returns the budget of the settings' driving mode."""
    return settings.budget.for_mode(settings.mode) if settings.mode else settings.budget


def _make_plan(subject: Subject, settings: CheckSettings, budget: Budget) -> Plan:
    recipe = subject.recipe.bind() if subject.recipe else None
    return make_plan(
        budget,
        settings.tier,
        subject=subject.name,
        sha256=recipe.sha256 if recipe else "",
        how={
            "policy": settings.policy,
            "warmup_frames": settings.warmup_frames,
            "phase_ns": settings.phase_ns,
            "mode": settings.mode,
            "runtime": subject.runtime,
            "scheduling": asdict(settings.scheduling),
            "against": subject.against.bind().sha256 if subject.against else "",
        },
    )


def _process_settings(settings: CheckSettings, budget: Budget) -> ProcessSettings:
    tier = settings.tier.spend()
    stop = None
    if tier.rule == "sprt" and tier.min_frames:
        stop = SequentialStop(
            deadline_ns=budget.frame.deadline_ns,
            min_frames=tier.min_frames,
            confidence=tier.confidence,
        )
    return ProcessSettings(
        measure=MeasureSettings(
            frames=tier.frames,
            rate_hz=budget.frame.rate_hz,
            warmup_frames=settings.warmup_frames,
            policy=settings.policy,
            phase_ns=settings.phase_ns,
            stop=stop,
        ),
        restarts=min(tier.restarts, tier.frames),
        parts=Parts(other=min(Parts().other, tier.frames)),
        scheduling=settings.scheduling,
        timeout_s=settings.timeout_s,
    )


def check_recorded(path: Path, settings: CheckSettings, *, stage: str = "") -> Report:
    """Judges latencies that were recorded elsewhere; see `read_recording`.

    Raises:
        InputError: a file is wrong, or holds frames of another rate than the budget's.
    """
    files = _read_files(settings)
    rate_hz = settings.budget.frame.rate_hz
    recording = read_recording(path, rate_hz=rate_hz)
    if stage:
        _require_stage(stage, settings.budget)
        recording = take_as_stage(recording, path, stage)
    found = recording.circumstances or Circumstances()
    if found.rate_hz is not None and found.rate_hz != rate_hz:
        raise InputError(
            f"{path} holds frames that came at {found.rate_hz:g} Hz",
            f"{rate_hz:g} Hz, the budget's rate",
            "measure again: frames wait for each other at another rate",
        )
    now = replace(found, rate_hz=rate_hz, is_whole_frame=recording.run.is_whole_frame)
    _require_like(files, now, settings)
    return _conclude(
        recording.run,
        Subject(name=path.name),
        settings,
        files,
        environment=found.environment,
        session=found.session,
    )


def _require_stage(stage: str, budget: Budget) -> None:
    """Refuses a name that no budget knows: what all known stages leave would be its limit."""
    if stage in FRAME_NAMES or (budget.stages and stage not in budget.stages):
        raise InputError(
            f"--stage is '{stage}', for which the budget has no limit",
            ", ".join(budget.stages) or "the name of a part of the frame, such as network",
            name_nearest(stage, budget.stages),
        )


_Files = tuple[dict[str, HeadQuality] | None, Baseline | None]


def _read_files(settings: CheckSettings) -> _Files:
    """Reads them before the measurement, so that a wrong one costs no time."""
    quality = read_quality(settings.quality) if settings.quality else None
    if settings.quality and quality is not None:
        require_plausible(settings.quality, quality, settings.budget.heads)
    return quality, read_baseline(settings.baseline) if settings.baseline else None


def _require_like(files: _Files, now: Circumstances, settings: CheckSettings) -> None:
    if files[1] is not None:
        files[1].require_like(now, environment_mode=settings.budget.environment)


def _conclude(
    run: Run,
    subject: Subject,
    settings: CheckSettings,
    files: _Files,
    experiment: Experiment | None = None,
    plan: Plan | None = None,
    reference: Experiment | None = None,
    *,
    environment: Environment | None = None,
    session: Mapping[str, Any] | None = None,
) -> Report:
    quality, baseline = files
    whole = budget_of(settings)
    budget = whole if run.is_whole_frame else _part_of(whole, run.stage_names, quality)
    notes = describe_unread(quality or {}, settings.budget.heads)
    if plan is not None and plan.values["artifact_sha256"] == plan.values["how"]["against"] != "":
        notes.append("The build before is the very file that is checked, so it is no slower.")
    notes += describe_limits(whole, settings.mode)
    if not run.is_whole_frame:
        notes.append(describe_part(whole, budget, run.stage_names))
    if experiment:
        environment, session = experiment.environment, _asked_and_got(subject, experiment)
    judgement = judge(
        run,
        budget,
        tier=settings.tier,
        environment=environment,
        heads=quality,
        baseline_ns=baseline.latency_ns if baseline else None,
        session=session,
        attempt=plan.attempt if plan else None,
        reference=reference.paced if reference else None,
        baseline_doubt=baseline.describe_other_machine(environment) if baseline else "",
        reference_doubt=_describe_unfit(reference, subject, budget) if reference else "",
    )
    variant = build_variant(
        subject.name,
        run,
        budget,
        judgement=judgement,
        experiment=experiment,
        artifact=subject.artifact,
        runtime=experiment.runtime if experiment else subject.runtime,
        session=experiment.session if experiment else session,
        heads={
            head: {"metric": values.metric, "value": values.candidate}
            for head, values in (quality or {}).items()
        },
    )
    if plan is not None:
        variant.details["plan"] = plan.to_dict()
    return build_report([variant], budget, judgement, environment=environment, notes=tuple(notes))


def _part_of(
    whole: Budget, names: tuple[str, ...], quality: Mapping[str, HeadQuality] | None
) -> Budget:
    """Returns the budget of a part of the frame, with the contracts that can be judged."""
    kept = {head: whole.heads[head] for head in whole.heads if quality and head in quality}
    return replace(whole.for_part(names), heads=kept)


def _asked_and_got(subject: Subject, experiment: Experiment) -> dict[str, Any] | None:
    if experiment.session is None:
        return None
    runtime = {"asked": subject.runtime or None, "got": experiment.runtime}
    return {**experiment.session, "runtime": runtime}


def _describe_unfit(reference: Experiment, subject: Subject, budget: Budget) -> str:
    """Returns why the frames of the build before cannot be believed; empty where they can."""
    gates = judge_measurement(
        reference.paced,
        budget,
        environment=reference.environment,
        session=_asked_and_got(subject, reference),
    )
    bad = [f"{gate.name}: {gate.detail}" for gate in gates if gate.verdict is Verdict.INVALID]
    return f"the build before was measured unfit ({'; '.join(bad)})" if bad else ""
