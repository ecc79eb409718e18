"""`compress diagnose`: says what costs a quantized network its quality, and what helps."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framefit.commands.options import (
    ColorOption,
    DataOption,
    FactoryOption,
    InputShapeOption,
    JsonOption,
    KeepFloatOption,
    MeanOption,
    PixelScaleOption,
    ResizeOption,
    SamplesOption,
    SequenceOption,
    StateOption,
    StdOption,
    TrustOption,
    VerboseOption,
    model_options,
    spec_values,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compress.diagnose import Diagnosis

SHOWN_LAYERS = 12
SHOWN_OUTPUTS = 4


def diagnose(
    data: DataOption,
    model: Annotated[
        Path | None,
        typer.Argument(
            help="The float network: .onnx, .pt, .safetensors or .pt2; by default the newest float "
            "one of the workspace.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Runtime that it would be quantized for, as in compress quantize. Without it, "
            "tensorrt, and openvino is among what is tried.",
        ),
    ] = None,
    observer: Annotated[
        str, typer.Option(help="How each activation's range is chosen, as in compress quantize.")
    ] = "mse",
    rounding: Annotated[
        str, typer.Option(help="How weights are rounded, as in compress quantize.")
    ] = "nearest",
    keep_float: KeepFloatOption = None,
    html: Annotated[Path | None, typer.Option(help="Write the diagnosis as a page.")] = None,
    samples: SamplesOption = 16,
    state: StateOption = None,
    sequence_frames: SequenceOption = None,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    input_shape: InputShapeOption = None,
    factory: FactoryOption = None,
    trust: TrustOption = False,
    json_file: JsonOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Find which layers cost which head how much quality in INT8, and try what may help.

    Every fourth sample judges, the others calibrate.
    """
    from framefit.commands.quantize import read_settings
    from framefit.diagnose_job import DiagnoseOutputs, diagnose_file
    from framefit.progress import show_progress

    outputs = DiagnoseOutputs(json=json_file, html=html)
    options = model_options(input_shape, factory, state, sequence_frames, trust=trust)
    with show_progress() as progress:
        diagnosis = diagnose_file(
            model,
            data,
            read_settings(
                observer,
                None,
                rounding,
                None,
                keep_float=tuple(keep_float or ()),
                **({} if target is None else {"target": target}),
            ),
            outputs,
            keeps_target=target is not None,
            samples=samples,
            model_options=options,
            spec_options=spec_values(color, pixel_scale, mean, std, resize),
            progress=progress,
        )
    show_diagnosis(diagnosis, is_verbose=verbose)
    if html is not None:
        typer.echo(f"page: {html}")


def show_diagnosis(diagnosis: "Diagnosis", *, is_verbose: bool) -> None:
    """Prints the layers, the most costly ones only unless asked for all, and the remedies.

    A column for each of many outputs leaves none of them room, so only the worst is shown then.
    """
    from compress.diagnose.html import describe_layer, format_share
    from compress.sqnr import format_db
    from framefit.table import print_table

    is_narrow = len(diagnosis.heads) > SHOWN_OUTPUTS
    alone = ("worst output alone",) if is_narrow else [f"alone: {head}" for head in diagnosis.heads]
    shown = diagnosis.by_share if is_verbose else diagnosis.by_share[:SHOWN_LAYERS]
    print_table(
        (
            "layer",
            "belongs to",
            "noise",
            *alone,
            "output dB",
            "worst channels",
        ),
        (
            (
                f"{layer.node} ({layer.op_type})",
                layer.owner,
                format_share(layer.share),
                *(
                    [_describe_worst(layer.alone_db)]
                    if is_narrow
                    else [format_db(value) for value in layer.alone_db.values()]
                ),
                format_db(layer.sqnr_db),
                ", ".join(
                    f"{index}: {format_db(layer.channel_db[index])}"
                    for index in layer.worst_channels
                ),
            )
            for layer in shown
        ),
    )
    for layer in shown:
        for note in describe_layer(layer) if is_verbose or layer.share >= 0.05 else ():
            typer.echo(f"{layer.node}: {note}.")
    heads = ", ".join(f"{name} {format_db(db)} dB" for name, db in diagnosis.heads_db.items())
    typer.echo(f"\n{diagnosis.limit} ({heads}).")
    show_remedies(diagnosis)


def _describe_worst(alone_db: "Mapping[str, float]") -> str:
    from compress.sqnr import format_db

    worst = min(alone_db, key=lambda head: alone_db[head])
    return f"{worst}: {format_db(alone_db[worst])}"


def show_remedies(diagnosis: "Diagnosis") -> None:
    """Prints what was tried and what it brought, the best first."""
    from framefit.table import print_table

    judged = "others" if diagnosis.is_held_out else "of the same"
    samples = f"{diagnosis.calibration_samples} samples, judged on {diagnosis.judged_samples}"
    if diagnosis.remedies:
        print_table(
            ("tried", "dB", "least"),
            (
                (item.command, f"{item.gain_db:+.1f}", f"{item.worst_gain_db:+.1f}")
                for item in diagnosis.remedies
            ),
        )
    best = diagnosis.recommended
    advice = (
        f"recommended: {best.command} ({best.gain_db:+.1f} dB; {best.why})"
        if best is not None
        else "nothing that was tried helps by half a decibel"
    )
    typer.echo(f"{advice}\ncalibrated on {samples} {judged}")
