"""`compress prune`: takes whole channels out of a network."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from artifacts.wording import name_some
from framefit.commands.options import (
    ColorOption,
    FactoryOption,
    InputShapeOption,
    JsonOption,
    MeanOption,
    PixelScaleOption,
    ResizeOption,
    SequenceOption,
    StateOption,
    StdOption,
    VerboseOption,
    model_options,
    spec_values,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framefit.prune_job import PruneOutcome

_MOST_STATISTICS = 4


def prune(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="The network: .pt, or weights with --factory; by default the newest checkpoint "
            "of the workspace.",
        ),
    ] = None,
    target_ms: Annotated[
        float | None,
        typer.Option(help="Latency to reach on the runtime, ms (lower quartile)."),
    ] = None,
    speed_up: Annotated[
        float | None,
        typer.Option(help="How many times as fast as now it becomes on the runtime, measured."),
    ] = None,
    ratio: Annotated[
        float | None, typer.Option(help="Share of the removable channels to remove, 0 to 1.")
    ] = None,
    macs: Annotated[
        float | None,
        typer.Option(help="Multiplications of an inference to reach; 1 or less: a share of them."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Pictures, an .npz, a dataset of framefit.toml, or 'scenes' (rendered roads with "
            "labels): for importance, BatchNorm and the quality probe.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The .pt or .safetensors to write (default: MODEL.pruned.pt, here)."),
    ] = None,
    importance: Annotated[
        str | None,
        typer.Option(
            help="fisher (default with --data), taylor, activation, magnitude (default without) "
            "or bn-scale."
        ),
    ] = None,
    ranking: Annotated[
        str, typer.Option(help="global, or isomorphic: each kind of layer loses the same share.")
    ] = "global",
    round_to: Annotated[
        int, typer.Option(help="Channel counts become multiples of this: 8, 16, 32; 1 for any.")
    ] = 8,
    fewest: Annotated[int, typer.Option(help="No layer gets fewer channels than this.")] = 8,
    protect: Annotated[
        list[str] | None, typer.Option(help="Name of a module that stays as it is; repeatable.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Prune in this many steps (--ratio, --macs).")] = 1,
    stop_below_db: Annotated[
        float | None,
        typer.Option(help="Take back a step after which an output's SQNR is below this, dB."),
    ] = None,
    sparsity: Annotated[
        str | None,
        typer.Option(
            help="2:4: also zero two of every four weights, in layers that are large enough."
        ),
    ] = None,
    runtime: Annotated[
        str, typer.Option(help="Where the latency is measured: openvino or onnxruntime.")
    ] = "openvino",
    precision: Annotated[
        str, typer.Option(help="float, or int8: the latency is that of the network once quantized.")
    ] = "float",
    samples: Annotated[int, typer.Option(min=1, help="Samples of --data to use.")] = 32,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    state: StateOption = None,
    sequence_frames: SequenceOption = None,
    input_shape: InputShapeOption = None,
    factory: FactoryOption = None,
    json_file: JsonOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Take whole channels out of a network: to a latency, a share of channels, or MACs."""
    from artifacts.atomic import require_writable, write_json
    from artifacts.errors import InputError
    from compress.prune.select import WidthLimits
    from compress.prune.settings import PruneSettings
    from framefit.progress import show_progress
    from framefit.prune_goal import PruneGoal
    from framefit.prune_job import prune_file

    if sparsity not in (None, "2:4"):
        raise InputError(f"--sparsity is '{sparsity}'", "2:4")
    if json_file is not None:
        require_writable(json_file)
    settings = PruneSettings(
        importance=importance or ("fisher" if data else "magnitude"),
        ranking=ranking,
        limits=WidthLimits(round_to=round_to, fewest=fewest),
        protect=tuple(protect or ()),
        steps=steps,
        stop_below_db=stop_below_db,
    )
    with show_progress() as progress:
        outcome = prune_file(
            model,
            PruneGoal(
                target_ms=target_ms,
                speed_up=speed_up,
                ratio=ratio,
                macs=macs,
                runtime=runtime,
                precision=precision,
            ),
            settings,
            data=data,
            out=out,
            samples=samples,
            is_sparse=sparsity is not None,
            model_options=model_options(input_shape, factory, state, sequence_frames),
            spec_options=spec_values(color, pixel_scale, mean, std, resize),
            progress=progress,
        )
    if json_file is not None:
        write_json(json_file, outcome.to_dict())
    show_outcome(outcome, is_verbose=verbose)


def show_outcome(outcome: "PruneOutcome", *, is_verbose: bool) -> None:
    """Prints what was pruned; each layer only where asked for."""
    from compress.sqnr import format_db
    from framefit.table import print_table

    result = outcome.result
    if is_verbose:
        print_table(
            ("made by", "channels", "kept"),
            ((item.weight, str(item.before), str(item.after)) for item in result.widths),
        )
        for item in result.left_alone:
            typer.echo(f"left alone: {item.weight} ({item.channels} channels): {item.reason}")
        for layer in outcome.sparse:
            typer.echo(f"2:4 {layer.module}: {layer.reason or 'sparse'}")
    if result.quality and result.quality[-1]:
        print_table(
            ("output", "SQNR dB on held-out samples, before any repair"),
            ((name, format_db(value)) for name, value in result.quality[-1].items()),
        )
    for note in result.notes:
        typer.echo(f"warning: {note}", err=True)
    if outcome.sparse:
        count = sum(not layer.reason for layer in outcome.sparse)
        typer.echo(
            f"2:4 sparsity: {count} of {len(outcome.sparse)} layers; whether an engine uses it "
            "shows only when it is measured"
        )
    if result.latency_ms is not None:
        before, after = result.latency_ms
        timed = "network in INT8" if outcome.goal.precision == "int8" else "exported network"
        typer.echo(f"latency: {before:.2f} ms -> {after:.2f} ms, lower quartile of the {timed}")
    channels = [sum(getattr(item, side) for item in result.widths) for side in ("before", "after")]
    typer.echo(
        f"{outcome.out}: channels {channels[0]} -> {channels[1]}, weights "
        f"{outcome.parameters[0] / 1e6:.2f} M -> {outcome.parameters[1] / 1e6:.2f} M, MACs "
        f"{result.macs[0] / 1e9:.3f} G -> {result.macs[1] / 1e9:.3f} G; equal to the zeroed "
        f"original within {max(result.differences, default=0.0):.0e}"
        f"{_name_statistics(result.narrowed_statistics)}"
    )
    if not is_verbose and result.left_alone:
        count = len(result.left_alone)
        layers = "1 layer has" if count == 1 else f"{count} layers have"
        typer.echo(f"{layers} channels left alone; --verbose says why")


def _name_statistics(names: "Sequence[str]") -> str:
    """Returns what has to be said of the proof where statistics run over channels."""
    if not names:
        return ""
    shown = name_some(names, _MOST_STATISTICS)
    return f", with statistics over the remaining channels only: {shown}"
