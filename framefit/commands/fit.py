"""`framefit fit`: the network that keeps a budget and loses least."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framefit.commands.options import (
    ColorOption,
    DataOption,
    FactoryOption,
    FramesOption,
    InputShapeOption,
    JsonOption,
    MeanOption,
    PixelScaleOption,
    ResizeOption,
    StdOption,
    TimeoutOption,
    spec_values,
)

if TYPE_CHECKING:
    from framefit.fit_job import FitOutcome


def fit(
    model: Annotated[
        Path, typer.Argument(help="The network: .onnx; .pt or .safetensors are narrowed too.")
    ],
    budget: Annotated[Path, typer.Option(help="The budget file, see examples/budget.toml.")],
    data: DataOption,
    out: Annotated[Path, typer.Option(help="Folder for the networks and the report.")] = Path(
        "out/fit"
    ),
    target: Annotated[
        str, typer.Option(help="Where it runs and is measured: openvino or onnxruntime.")
    ] = "openvino",
    tier: Annotated[
        str, typer.Option(help="Evidence for each verdict: a tier as of budget-check.")
    ] = "pr",
    frames: FramesOption = None,
    environment: Annotated[
        str | None, typer.Option(help="enforce, report or strict, instead of the budget's.")
    ] = None,
    timeout: TimeoutOption = 60.0,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Labelled pictures for the budget's limits on heads: scenes[:COUNT], "
            "coco:PICTURES:FILE.json, cityscapes:PICTURES:MASKS or camvid:PICTURES:MASKS."
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(help="Steps of distillation after channels were taken out.", min=1)
    ] = 500,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    input_shape: InputShapeOption = None,
    factory: FactoryOption = None,
    json_file: JsonOption = None,
) -> None:
    """Find the network that keeps the budget and loses least.

    Tried in turn, until one keeps it: the float network; INT8 with the costliest layers in float,
    as many as the budget leaves time for; where the weights can be trained, fewer channels,
    distilled, and INT8. Each is judged as by budget-check, at the camera's rate, and compared with
    the float network. Exit codes: 0 pass, 1 none keeps it, 2 bad input, 3 inconclusive, 4 invalid
    environment, 5 internal.
    """
    from artifacts.atomic import require_writable, write_json
    from framefit.fit_job import REPORT, fit_file
    from framefit.fit_workshop import FitSettings
    from framefit.model_source import ModelOptions
    from framefit.progress import show_progress

    for path in (out / REPORT, json_file):
        if path is not None:
            require_writable(path)
    settings = FitSettings(
        model=model,
        budget=budget,
        data=data,
        out=out,
        target=target,
        tier=tier,
        frames=frames,
        environment=environment,
        timeout_s=timeout,
        labels=labels,
        steps=steps,
        model_options=ModelOptions(tuple(input_shape or ()), factory),
        spec_options=spec_values(color, pixel_scale, mean, std, resize),
    )
    with show_progress() as progress:
        outcome = fit_file(settings, progress, partial(typer.echo, err=True))
    if json_file is not None:
        write_json(json_file, outcome.to_dict())
    show_outcome(outcome)
    raise typer.Exit(outcome.exit_code)


def show_outcome(outcome: "FitOutcome") -> None:
    """Prints every network that was tried, its latency beside its quality, and which was taken."""
    from framefit.table import print_table

    fitted = outcome.fitted
    rows = []
    for item in fitted.tried:
        quality = outcome.quality[item.artifact]
        network_ms = item.report.variants[-1].network_ms or {}
        rows.append(
            (
                item.name,
                f"{network_ms.get('p50') or float('nan'):.2f}",
                f"{item.bound_ms:.2f}",
                {True: "yes", False: "no", None: "unknown"}[item.keeps],
                describe_quality(quality),
                item.artifact.name,
            )
        )
    heading = f"P99 at most, ms ({outcome.limit_ms:g} allowed)"
    if rows:
        print_table(("network", "P50, ms", heading, "keeps it", "quality", "file"), rows)
    for note in fitted.notes:
        typer.echo(note)
    if fitted.chosen is None:
        undecided = "whether a network keeps the budget could not be told here"
        is_open = fitted.is_undecided or fitted.is_inconclusive
        typer.echo(undecided if is_open else "no network keeps the budget")
        return
    report = fitted.chosen.report
    broken = [gate for gate in report.gates if gate.verdict.value != "pass"]
    for gate in broken:
        typer.echo(f"{gate.name}: {gate.verdict.value}: {gate.detail}")
    typer.echo(f"{fitted.chosen.artifact}: {fitted.chosen.name}, verdict {report.verdict.value}")


def describe_quality(quality: dict[str, Any]) -> str:
    """Returns the metrics of the heads where there are labels, and the SQNR of the worst output."""
    from compress.sqnr import EXACT_DB

    heads = [
        f"{head} {found['metric']} {found['value']:.4f}"
        for head, found in quality.get("heads", {}).items()
    ]
    found = {name: figures["sqnr_db"] for name, figures in quality["outputs"].items()}
    worst = min(found, key=lambda name: EXACT_DB if found[name] is None else found[name])
    db = found[worst]
    said = "exact" if db is None or db >= EXACT_DB else f"worst output {worst} {db:.1f} dB"
    return ", ".join([*heads, said])
