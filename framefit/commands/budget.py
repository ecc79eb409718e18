"""`framefit budget` (also installed as `budget-check`): the gate for deploy CI."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from latency_budget.check import CheckSettings
    from latency_budget.report import Report

app = typer.Typer(no_args_is_help=True, help="Check that a frame keeps its latency budget.")

Model = Annotated[
    Path | None,
    typer.Argument(help="An .onnx model or a .plan; with --pipeline, given to its function."),
]
BudgetFile = Annotated[Path, typer.Option("--budget", help="The limits, see examples/budget.toml.")]
Runtime = Annotated[str | None, typer.Option(help="openvino, onnxruntime or tensorrt.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads of one inference.")]
InputShape = Annotated[
    list[str] | None,
    typer.Option(help="Fixes a dynamic input, such as x=1,3,240,320; may be repeated."),
]
Data = Annotated[
    Path | None, typer.Option(help="Pictures or an .npz as MODEL's input; random if not given.")
]
SamplesFile = Annotated[
    Path | None,
    typer.Option("--samples", help="Judge recorded latencies (.csv, .json, .jsonl, .npz)."),
]
Pipeline = Annotated[
    str | None,
    typer.Option(help="The whole frame: package.module:function returning (stages, frames)."),
]
Frames = Annotated[int | None, typer.Option(help="Frames to time, instead of the tier's.")]


@app.command()
def check(
    budget: BudgetFile,
    model: Model = None,
    runtime: Runtime = None,
    threads: Threads = None,
    input_shape: InputShape = None,
    data: Data = None,
    samples: SamplesFile = None,
    pipeline: Pipeline = None,
    tier: Annotated[
        str, typer.Option(help="Evidence: smoke, pr, nightly, release, or one of the budget's.")
    ] = "pr",
    frames: Frames = None,
    warmup: Annotated[int, typer.Option(help="Frames before the timed ones.")] = 90,
    policy: Annotated[
        str, typer.Option(help="fifo: every frame; latest: overtaken frames are dropped.")
    ] = "fifo",
    environment: Annotated[
        str | None, typer.Option(help="enforce, report or strict, instead of the budget's.")
    ] = None,
    quality: Annotated[
        Path | None, typer.Option(help="JSON with each head's metric, reference and candidate.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="A report.json that must not be faster.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.json, .md, .html and .xml.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report as JSON to this file.")
    ] = None,
) -> None:
    """Measure a frame at the camera's rate, or read samples, and judge it against a budget.

    Exit codes: 0 pass, 1 fail, 2 bad input, 3 inconclusive, 4 invalid environment, 5 internal.
    """
    settings = _read_settings(
        budget,
        tier=tier,
        frames=frames,
        environment=environment,
        rest={
            "policy": policy,
            "warmup_frames": warmup,
            "quality": quality,
            "baseline": baseline,
        },
    )
    report = _make_report(settings, model, samples, pipeline, (runtime, threads, input_shape, data))
    _show(report, out, json_file)
    raise typer.Exit(report.verdict.exit_code)


@app.command()
def init(
    out: Annotated[Path, typer.Argument(help="The budget file to write.")],
    samples: Annotated[Path, typer.Option(help="A report.json or other recorded latencies.")],
    rate_hz: Annotated[float, typer.Option(help="The camera's frames per second.")] = 30.0,
    margin: Annotated[float, typer.Option(help="Factor on the measured P99 of a stage.")] = 1.1,
    force: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
) -> None:
    """Write a budget file from recorded latencies."""
    from artifacts.atomic import write_text
    from artifacts.errors import InputError
    from latency_budget.budget_file import render_budget
    from latency_budget.recorded import read_recorded

    if not 1 <= margin <= 10 or not 0.1 <= rate_hz <= 10_000:
        raise InputError(f"margin {margin}, rate {rate_hz}", "a margin of 1 to 10 and a rate in Hz")
    if out.exists() and not force:
        raise InputError(f"{out} exists already", fix="choose another name, or give --force")
    write_text(out, render_budget(read_recorded(samples), rate_hz=rate_hz, margin=margin))
    typer.echo(f"wrote {out}")


def _read_settings(
    path: Path, *, tier: str, frames: int | None, environment: str | None, rest: dict[str, Any]
) -> "CheckSettings":
    from dataclasses import replace

    from artifacts.errors import InputError
    from latency_budget.budget import MODES, Budget
    from latency_budget.check import CheckSettings
    from latency_budget.measure import POLICIES

    budget = Budget.load(path)
    evidence = budget.tier(tier)
    if frames is not None:
        if frames < 1:
            raise InputError(f"--frames is {frames}", "1 or more")
        evidence = replace(evidence, frames=frames)
    if environment is not None:
        if environment not in MODES:
            raise InputError(f"--environment is '{environment}'", " or ".join(MODES))
        budget = replace(budget, environment=environment)
    if rest["policy"] not in POLICIES or rest["warmup_frames"] < 0:
        raise InputError(
            f"--policy {rest['policy']}, --warmup {rest['warmup_frames']}",
            f"{' or '.join(POLICIES)}, and 0 or more",
        )
    return CheckSettings(budget=budget, tier=evidence, **rest)


def _make_report(
    settings: "CheckSettings",
    model: Path | None,
    samples: Path | None,
    pipeline: str | None,
    engine: tuple[str | None, int | None, list[str] | None, Path | None],
) -> "Report":
    from artifacts.errors import InputError
    from framefit.workspace import Workspace
    from latency_budget.check import check_recorded

    if samples is not None:
        if model is not None or pipeline is not None:
            raise InputError("--samples was given together with MODEL or --pipeline", "one of them")
        return check_recorded(samples, settings)
    if pipeline is not None:
        return _check_pipeline(pipeline, model, settings)
    if model is None:
        model = Workspace().find_artifact("int8-onnx", "plan", "float-onnx")
    return _check_model(model, settings, *engine)


def _check_pipeline(pipeline: str, model: Path | None, settings: "CheckSettings") -> "Report":
    from artifacts.errors import InputError
    from latency_budget.check import Subject, check_stages_of
    from latency_budget.pipeline import load_pipeline

    if model is not None and not model.is_file():
        raise InputError(f"{model} does not exist", "a model file")
    stages, frames = load_pipeline(pipeline, model)
    subject = Subject(name=model.name if model else pipeline, artifact=model)
    return check_stages_of(
        stages, frames, subject, settings, is_whole_frame=True, progress=_say_progress
    )


def _check_model(
    model: Path,
    settings: "CheckSettings",
    runtime: str | None,
    threads: int | None,
    input_shape: list[str] | None,
    data: Path | None,
) -> "Report":
    from artifacts.onnx_file import parse_input_shapes
    from engines.runtimes import SessionSettings, open_session
    from latency_budget.check import Subject, check_stages_of
    from latency_budget.network import network_stage, random_feeds, read_feeds

    shapes = parse_input_shapes(tuple(input_shape or ()))
    wanted = SessionSettings(threads=threads, input_shapes=shapes)
    with open_session(model, runtime, wanted) as session:
        feeds = read_feeds(session, data) if data else random_feeds(session)
        subject = Subject(
            name=model.name,
            artifact=model,
            runtime=session.runtime,
            session=session.describe(),
        )
        return check_stages_of(
            [network_stage(session)],
            feeds,
            subject,
            settings,
            is_whole_frame=False,
            progress=_say_progress,
        )


def _say_progress(what: str, done: int, total: int) -> None:
    """One line per part: a moving bar would run, and be measured, beside the timed frames."""
    if done < total:
        typer.echo(f"[{done + 1}/{total}] {what}", err=True)


def _show(report: "Report", out: Path | None, json_file: Path | None) -> None:
    from rich.console import Console

    from artifacts.atomic import write_text
    from latency_budget.reports import write_report
    from latency_budget.reports.json_report import render
    from latency_budget.reports.terminal import print_report

    if out is not None:
        paths = write_report(report, out)
        typer.echo(f"wrote {', '.join(str(path) for path in paths.values())}", err=True)
    if json_file is not None:
        write_text(json_file, render(report))
    print_report(report, Console())
