"""`framefit budget` (also installed as `budget-check`): the gate for deploy CI."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framefit.commands.options import (
    FramesOption,
    JsonOption,
    NewestOption,
    RevokedOption,
    TimeoutOption,
    TrustedKeyOption,
)
from framefit.commands.report import report, verify
from framefit.unused_options import refuse_unused

if TYPE_CHECKING:
    from latency_budget.report import Report

app = typer.Typer(no_args_is_help=True, help="Check that a frame keeps its latency budget.")
app.command()(report)
app.command()(verify)

_ENGINE = ("runtime", "threads", "input_shape", "data")
_TRUST = ("trusted_key", "revoked", "newest")
_MEASURING = (
    *_ENGINE,
    *_TRUST,
    *("frames", "restarts", "warmup", "policy", "sweep", "cpus", "priority", "ledger", "timeout"),
)
_TIERS = "smoke, pr, nightly, release, mlperf-automotive"
Model = Annotated[
    Path | None,
    typer.Argument(help="An .onnx model or a .plan; with --pipeline, given to its function."),
]
CheckedModel = Annotated[
    Path | None,
    typer.Argument(
        help="An .onnx model or a .plan, by default the newest of the workspace; with --pipeline, "
        "given to its function."
    ),
]
BudgetFile = Annotated[Path, typer.Option("--budget", help="The limits, see examples/budget.toml.")]
Runtime = Annotated[str | None, typer.Option(help="openvino, onnxruntime or tensorrt.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads of one inference.")]
InputShape = Annotated[
    list[str] | None,
    typer.Option(help="Fixes a dynamic input, such as x=1,3,240,320; may be repeated."),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="Pictures, an .npz, or a dataset of framefit.toml as MODEL's input; random if not "
        "given."
    ),
]
SamplesFile = Annotated[
    Path | None,
    typer.Option("--samples", help="Judge recorded latencies (.csv, .json, .jsonl, .npz)."),
]
Pipeline = Annotated[
    str | None,
    typer.Option(help="The whole frame: package.module:function returning (stages, frames)."),
]


@app.command()
def check(
    context: typer.Context,
    budget: BudgetFile,
    model: CheckedModel = None,
    runtime: Runtime = None,
    threads: Threads = None,
    input_shape: InputShape = None,
    data: Data = None,
    samples: SamplesFile = None,
    stage: Annotated[
        str, typer.Option(help="What --samples are of, such as network; else of whole frames.")
    ] = "",
    pipeline: Pipeline = None,
    against: Annotated[
        Path | None, typer.Option(help="An older build of MODEL, measured in turns with it.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="A driving mode of the budget: only its heads are on.")
    ] = None,
    tier: Annotated[str, typer.Option(help=f"Evidence: {_TIERS}, or one of the budget's.")] = "pr",
    frames: FramesOption = None,
    restarts: Annotated[
        int | None, typer.Option(help="Processes that share the frames, instead of the tier's.")
    ] = None,
    warmup: Annotated[int, typer.Option(help="Frames before the timed ones.")] = 90,
    policy: Annotated[
        str, typer.Option(help="fifo: every frame; latest: overtaken frames are dropped.")
    ] = "fifo",
    sweep: Annotated[
        int,
        typer.Option(help="Frames of each setting of a sweep over phases and rates; 0 for none."),
    ] = 0,
    cpus: Annotated[
        str | None, typer.Option(help="Processors to stay on, such as 0,1; all if not given.")
    ] = None,
    priority: Annotated[
        str, typer.Option(help="normal, high or realtime, where the system allows it.")
    ] = "normal",
    environment: Annotated[
        str | None,
        typer.Option(
            help="What a disturbed machine does, instead of the budget's: enforce (invalid), "
            "report (only shown) or strict (unknown sensors are invalid too)."
        ),
    ] = None,
    timeout: TimeoutOption = 60.0,
    ledger: Annotated[
        Path, typer.Option(help="File that counts the attempts of one plan, a line each.")
    ] = Path(".framefit/attempts.jsonl"),
    quality: Annotated[
        Path | None, typer.Option(help="JSON with each head's metric, reference and candidate.")
    ] = None,
    trusted_key: TrustedKeyOption = None,
    revoked: RevokedOption = None,
    newest: NewestOption = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="An earlier report.json; the check fails where this run is slower."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.json, .md, .html and .xml.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Measure a frame at the camera's rate, or read samples, and judge it against a budget.

    Other commands: budget-check init, selftest, report, verify; each has a --help of its own.

    Exit codes: 0 pass, 1 fail, 2 bad input, 3 inconclusive, 4 invalid environment, 5 internal.
    """
    from artifacts.atomic import require_writable
    from framefit.budget_job import make_report, read_check_settings
    from framefit.trusted_models import Trust, open_trusted

    for path in (out / "report.json" if out else None, json_file):
        if path is not None:
            require_writable(path)
    settings = read_check_settings(
        budget,
        tier=tier,
        frames=frames,
        restarts=restarts,
        environment=environment,
        cpus=cpus,
        priority=priority,
        policy=policy,
        warmup_frames=warmup,
        sweep_frames=sweep,
        mode=mode,
        timeout_s=timeout,
        ledger=ledger,
        quality=quality,
        baseline=baseline,
        is_compared=against is not None,
    )
    _refuse_unused(context, samples, pipeline)
    engine = {"runtime": runtime, "threads": threads, "input_shape": input_shape, "data": data}
    trust = Trust(keys=trusted_key, revoked=revoked, newest=newest)
    with open_trusted(trust, model, against) as (opened, older):
        report = make_report(
            settings, opened, samples, pipeline, older, engine, stage=stage, progress=_say_progress
        )
    _show(report, out, json_file)
    raise typer.Exit(report.verdict.exit_code)


@app.command()
def init(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="The budget file to write.")],
    model: Model = None,
    samples: Annotated[
        Path | None, typer.Option(help="A report.json or other recorded latencies.")
    ] = None,
    pipeline: Pipeline = None,
    runtime: Runtime = None,
    threads: Threads = None,
    input_shape: InputShape = None,
    data: Data = None,
    frames: Annotated[int, typer.Option(help="Frames to time, where MODEL is measured.")] = 400,
    rate_hz: Annotated[
        float | None,
        typer.Option(help="The camera's frames per second; a report.json's own, or else 30."),
    ] = None,
    margin: Annotated[float, typer.Option(help="Factor on the measured P99 of a stage.")] = 1.1,
    timeout: TimeoutOption = 60.0,
    trusted_key: TrustedKeyOption = None,
    revoked: RevokedOption = None,
    newest: NewestOption = None,
    force: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
) -> None:
    """Write a budget file from a measurement of MODEL or --pipeline, or from recorded latencies."""
    from artifacts.atomic import require_writable, write_text
    from artifacts.errors import InputError
    from framefit.first_budget import measure_or_read
    from framefit.trusted_models import Trust, open_trusted
    from latency_budget.budget_file import render_budget
    from latency_budget.tiers import MOST_FRAMES

    is_rate = rate_hz is None or 0.1 <= rate_hz <= 10_000
    if not 1 <= margin <= 10 or not is_rate or not 1 <= frames <= MOST_FRAMES:
        raise InputError(
            f"--margin {margin}, --rate-hz {rate_hz or 'not given'}, --frames {frames}",
            f"a margin of 1 to 10, a rate of 0.1 to 10000 Hz, and 1 to {MOST_FRAMES} frames",
        )
    if out.suffix.lower() != ".toml":
        raise InputError(
            f"the budget to write is {out}",
            "a name ending in .toml, with the network behind it",
            "budget-check init budget.toml MODEL",
        )
    if out.exists() and not force:
        raise InputError(f"{out} exists already", fix="choose another name, or give --force")
    require_writable(out)
    _refuse_unused(context, samples, pipeline)
    engine = {"runtime": runtime, "threads": threads, "input_shape": input_shape, "data": data}
    trust = Trust(keys=trusted_key, revoked=revoked, newest=newest)
    with open_trusted(trust, model) as (opened,):
        measured = measure_or_read(
            opened,
            samples,
            pipeline,
            engine,
            frames=frames,
            rate_hz=rate_hz,
            timeout_s=timeout,
            progress=_say_progress,
        )
    text = render_budget(
        measured.run, rate_hz=measured.rate_hz, margin=margin, heads=measured.heads
    )
    write_text(out, text)
    typer.echo(f"wrote {out}")


@app.command()
def selftest(
    quick: Annotated[
        bool, typer.Option(help="Leave out the faults on the machine's real clock (20 s).")
    ] = False,
    json_file: JsonOption = None,
) -> None:
    """Inject stalls, bursts, drift, throttling, drops and clock faults; each must be caught.

    Exit codes: 0 every fault got the right verdict, 1 one did not.
    """
    from artifacts.atomic import write_json
    from latency_budget.selftest import run_selftest

    outcomes = run_selftest(quick=quick, progress=_say_progress)
    for outcome in outcomes:
        mark = "ok " if outcome.is_right else "BAD"
        wanted = "" if outcome.is_right else f", expected {outcome.expected}"
        typer.echo(f"{mark} {outcome.name}: {outcome.found}{wanted} ({outcome.detail})")
    wrong = sum(not outcome.is_right for outcome in outcomes)
    typer.echo(f"{len(outcomes) - wrong} of {len(outcomes)} faults got the right verdict")
    if json_file is not None:
        write_json(json_file, [outcome.to_dict() for outcome in outcomes])
    raise typer.Exit(1 if wrong else 0)


def _say_progress(what: str, done: int, total: int) -> None:
    """One line per part: a moving bar would run, and be measured, beside the timed frames."""
    if done < total:
        typer.echo(f"[{done + 1}/{total}] {what}", err=True)


def _refuse_unused(context: typer.Context, samples: Path | None, pipeline: str | None) -> None:
    """Refuses options of a measurement that recorded latencies or own stages do not read."""
    if samples is not None:
        refuse_unused(context, _MEASURING, "--samples were recorded already")
    if pipeline is not None:
        reason = "the function of --pipeline builds the stages and the frames itself"
        refuse_unused(context, _ENGINE, reason)


def _show(report: "Report", out: Path | None, json_file: Path | None) -> None:
    from rich.console import Console

    from artifacts.atomic import write_text
    from latency_budget.reports import write_report
    from latency_budget.reports.json_report import render
    from latency_budget.reports.terminal import print_report

    try:
        if out is not None:
            paths = write_report(report, out)
            typer.echo(f"wrote {', '.join(str(path) for path in paths.values())}", err=True)
        if json_file is not None:
            write_text(json_file, render(report))
    finally:  # A verdict that cannot be written is still shown.
        print_report(report, Console())
