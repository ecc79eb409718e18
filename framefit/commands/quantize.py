"""`compress quantize`: turns a float network into an INT8 one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framefit.commands.options import (
    ColorOption,
    DataOption,
    FactoryOption,
    InputShapeOption,
    JsonOption,
    MeanOption,
    PixelScaleOption,
    ResizeOption,
    SamplesOption,
    StdOption,
    TrustOption,
    VerboseOption,
    spec_values,
)

if TYPE_CHECKING:
    from compress.quantize.settings import QuantizeSettings
    from framefit.quantize_job import QuantizeOutcome


def quantize(
    data: DataOption,
    model: Annotated[
        Path | None,
        typer.Argument(
            help="The network: .onnx, .pt, .safetensors or .pt2; by default the newest float one "
            "of the workspace.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write (default: MODEL's name with .int8.onnx, here)."),
    ] = None,
    target: Annotated[
        str, typer.Option(help="Runtime whose Q/DQ placement is used: tensorrt or openvino.")
    ] = "tensorrt",
    observer: Annotated[
        str, typer.Option(help="Chooses each activation's range: mse, percentile or minmax.")
    ] = "mse",
    percentile: Annotated[
        float | None, typer.Option(help="Percentage kept by --observer percentile (99.99).")
    ] = None,
    weights: Annotated[str, typer.Option(help="Type of the weights: int8.")] = "int8",
    rounding: Annotated[str, typer.Option(help="Rounds the weights: nearest.")] = "nearest",
    keep_float: Annotated[
        list[str] | None, typer.Option(help="Name of a node that stays in float; repeatable.")
    ] = None,
    samples: SamplesOption = 32,
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
    """Turn a float network into an INT8 one: Q/DQ pairs, per-channel weights, calibrated ranges."""
    from artifacts.atomic import require_writable, write_json
    from framefit.model_source import ModelOptions
    from framefit.progress import show_progress
    from framefit.quantize_job import quantize_file

    if json_file is not None:
        require_writable(json_file)
    settings = read_settings(target, observer, percentile, weights, rounding, keep_float)
    with show_progress() as progress:
        outcome = quantize_file(
            model,
            data,
            settings,
            out=out,
            samples=samples,
            model_options=ModelOptions(tuple(input_shape or ()), factory, trust),
            spec_options=spec_values(color, pixel_scale, mean, std, resize),
            progress=progress,
        )
    if json_file is not None:
        write_json(json_file, outcome.to_dict())
    show_outcome(outcome, is_verbose=verbose)


def read_settings(
    target: str,
    observer: str,
    percentile: float | None,
    weights: str,
    rounding: str,
    keep_float: list[str] | None,
) -> "QuantizeSettings":
    """Turns the options into settings, refusing what does not exist.

    Raises:
        InputError: an option has an unknown value, or does not belong to another.
    """
    from artifacts.errors import InputError
    from compress.quantize.observers import OBSERVERS
    from compress.quantize.rounding import ROUNDINGS
    from compress.quantize.settings import QuantizeSettings

    if weights != "int8":
        raise InputError(f"--weights is '{weights}'", "int8")
    if observer not in OBSERVERS:
        raise InputError(f"--observer is '{observer}'", f"one of {', '.join(OBSERVERS)}")
    if rounding not in ROUNDINGS:
        raise InputError(f"--rounding is '{rounding}'", f"one of {', '.join(ROUNDINGS)}")
    if percentile is not None and observer != "percentile":
        raise InputError(f"--percentile was given with --observer {observer}", "percentile")
    parameters = {} if percentile is None else {"percent": percentile}
    return QuantizeSettings(
        target=target,
        observer=OBSERVERS[observer](**parameters),
        rounding=ROUNDINGS[rounding](),
        keep_float=tuple(keep_float or ()),
    )


def show_outcome(outcome: "QuantizeOutcome", *, is_verbose: bool) -> None:
    """Prints what was made; the details only where asked for."""
    from framefit.table import print_table

    result = outcome.result
    if is_verbose:
        print_table(
            ("layer", "operator", "SQNR dB"),
            ((item.node, item.op_type, f"{item.sqnr_db:.1f}") for item in result.layers),
        )
        for item in result.declined:
            typer.echo(f"stays in float: {item.node}: {item.reason}")
    print_table(
        ("output", "SQNR dB on the calibration data"),
        ((name, f"{value:.1f}") for name, value in result.outputs_db.items()),
    )
    ratio = outcome.float_bytes / outcome.int8_bytes
    typer.echo(
        f"{outcome.out}: {len(result.layers)} layers in INT8, {len(result.declined)} in float, "
        f"{outcome.samples} samples, {outcome.int8_bytes / 1e6:.2f} MB ({ratio:.1f}x smaller)"
    )
