"""What `budget-check` does: from the command line's words to a check of one subject."""

import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.onnx_inputs import parse_input_shapes
from framefit.model_source import shapes_with_data
from framefit.network_check import check_network
from framefit.overflow_check import warn_of_overflow
from framefit.workspace import Workspace
from latency_budget.budget import MODES, Budget
from latency_budget.check import (
    INTERLEAVED_PAIRS,
    CheckSettings,
    Subject,
    check_recorded,
    check_subject,
)
from latency_budget.driving_mode import cut_to_heads
from latency_budget.measure import POLICIES
from latency_budget.priority import Scheduling
from latency_budget.report import NETWORK_STAGE, Report
from latency_budget.tiers import MOST_FRAMES, Tier
from latency_budget.workload import Recipe

Progress = Callable[[str, int, int], None]
Engine = Mapping[str, Any]

_log = logging.getLogger(__name__)


def read_check_settings(
    path: Path,
    *,
    tier: str,
    frames: int | None = None,
    restarts: int | None = None,
    environment: str | None = None,
    cpus: str | None = None,
    priority: str = "normal",
    is_compared: bool = False,
    **rest: Any,
) -> CheckSettings:
    """Reads the budget and puts the command line's wishes into it.

    Args:
        path: the budget file.
        tier: a name of its tiers.
        frames: instead of the tier's; also the fewest.
        restarts: instead of the tier's.
        environment: instead of the budget's.
        cpus: processors, separated by commas.
        priority: see `Scheduling`.
        is_compared: an older build is measured in turns.
        rest: further values of `CheckSettings`.

    Raises:
        InputError: the file or a value is wrong.
    """
    budget = Budget.load(path)
    evidence = _choose_evidence(budget.tier(tier), frames, restarts, is_compared=is_compared)
    if environment is not None:
        if environment not in MODES:
            raise InputError(f"--environment is '{environment}'", " or ".join(MODES))
        budget = replace(budget, environment=environment)
    if rest["policy"] not in POLICIES or not 0 <= rest["warmup_frames"] <= MOST_FRAMES:
        raise InputError(
            f"--policy {rest['policy']}, --warmup {rest['warmup_frames']}",
            f"{' or '.join(POLICIES)}, and 0 to {MOST_FRAMES} frames",
        )
    if not 0 <= rest.get("sweep_frames", 0) <= MOST_FRAMES:
        raise InputError(f"--sweep is {rest['sweep_frames']}", f"0 to {MOST_FRAMES} frames")
    if rest["mode"] is not None:
        budget.for_mode(rest["mode"])
    scheduling = Scheduling(cpus=_parse_cpus(cpus), priority=priority)
    return CheckSettings(budget=budget, tier=evidence, scheduling=scheduling, **rest)


def _choose_evidence(
    tier: Tier, frames: int | None, restarts: int | None, *, is_compared: bool
) -> Tier:
    if frames is not None:
        if not 1 <= frames <= MOST_FRAMES:
            raise InputError(f"--frames is {frames}", f"1 to {MOST_FRAMES}")
        tier = replace(tier, frames=frames, min_frames=min(frames, tier.min_frames))
    if restarts is not None:
        if is_compared and restarts < INTERLEAVED_PAIRS:
            raise InputError(
                f"--restarts is {restarts}", f"{INTERLEAVED_PAIRS} or more with --against"
            )
        tier = replace(tier, restarts=restarts)
    if not 1 <= tier.restarts <= tier.frames:
        raise InputError(f"{tier.restarts} restarts for {tier.frames} frames", "1 up to the frames")
    return tier


def make_report(
    settings: CheckSettings,
    model: Path | None,
    samples: Path | None,
    pipeline: str | None,
    against: Path | None,
    engine: Engine,
    *,
    stage: str = "",
    progress: Progress | None = None,
) -> Report:
    """Judges recorded samples, a pipeline, or a model; the newest one where none is named.

    Args:
        settings: limits and evidence.
        model: a model or plan; with `pipeline`, given to its function.
        samples: recorded latencies.
        pipeline: `package.module:function`.
        against: an older model, measured in turns.
        engine: runtime, threads, input_shape and data.
        stage: what the samples are of, where they are no whole frames.
        progress: called with (what, done, total).

    Raises:
        InputError: they do not go together, or are wrong.
    """
    if samples is not None:
        if model is not None or pipeline is not None or against is not None:
            raise InputError(
                "--samples was given together with MODEL, --pipeline or --against", "one of them"
            )
        return check_recorded(samples, settings, stage=stage)
    if stage:
        raise InputError(f"--stage {stage} was given without --samples", "latencies of that stage")
    if model is None and pipeline is None:
        model = Workspace().find_artifact("int8-onnx", "plan", "float-onnx")
    if against is not None and model is None:
        raise InputError("--against was given without MODEL", "the newer build as MODEL")
    for path in (model, against):
        if path is not None and check_network(path):
            _log.warning(
                "%s has weights in files beside it, which the report's digest does not cover, so "
                "budget-check verify will refuse it",
                path,
            )
        if path is not None and pipeline is None:
            warn_of_overflow(path, engine["runtime"])
    heads = settings.budget.modes[settings.mode] if settings.mode else None
    with tempfile.TemporaryDirectory(prefix="framefit-") as folder:
        recipe = make_recipe(model, pipeline, heads, engine, Path(folder))
        older = None
        if against is not None:
            older = make_recipe(against, pipeline, heads, engine, Path(folder))
        subject = Subject(
            name=model.name if model else str(pipeline),
            recipe=recipe,
            stage_names=() if pipeline else (NETWORK_STAGE,),
            artifact=model,
            runtime=engine["runtime"] or "" if not pipeline else "",
            against=older,
        )
        return check_subject(subject, settings, progress)


def make_recipe(
    model: Path | None,
    pipeline: str | None,
    heads: tuple[str, ...] | None,
    engine: Engine,
    folder: Path,
) -> Recipe:
    """Returns how a process makes what is measured.

    Args:
        model: a model or plan; with `pipeline`, given to its function.
        pipeline: `package.module:function`.
        heads: those that are on; None for all.
        engine: runtime, threads, input_shape and data.
        folder: where a model without some of its heads is written.

    Raises:
        InputError: nothing was named, or the model has no such head.
    """
    if pipeline is not None:
        return Recipe(
            function="latency_budget.pipeline:open_pipeline_workload",
            arguments={
                "name": pipeline,
                "model": str(model) if model else None,
                "heads": list(heads) if heads is not None else None,
            },
            artifact=str(model) if model else "",
        )
    if model is None:
        raise InputError("no MODEL was given", "a model, --pipeline or --samples")
    measured = model
    if heads is not None:
        measured = cut_to_heads(model, heads, folder / sha256_file(model)[:16] / model.name)
    given = parse_input_shapes(tuple(engine["input_shape"] or ()))
    shapes = shapes_with_data(measured, given, engine["data"])
    return Recipe(
        function="latency_budget.network:open_network_workload",
        arguments={
            "model": str(measured),
            "runtime": engine["runtime"],
            "threads": engine["threads"],
            "input_shapes": {name: list(dims) for name, dims in shapes.items()},
            "data": str(Workspace().find_dataset(engine["data"])) if engine["data"] else None,
        },
        artifact=str(measured),
    )


def _parse_cpus(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise InputError(f"--cpus is '{text}'", "numbers separated by commas, such as 0,1")
    return tuple(int(part) for part in parts)
