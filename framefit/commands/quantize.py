"""`compress quantize`: turns a float network into an INT8 one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from framefit.commands.quantize_result import show_outcome

if TYPE_CHECKING:
    from compress.quantize.settings import QuantizeSettings

DEFAULT_TARGET = "tensorrt"
"""Whose file the others run too."""


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
        typer.Option(
            help="The file to write (default: MODEL's name with .int8.onnx or .int4.onnx, here)."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Runtime whose Q/DQ placement is used: tensorrt, openvino or onnxruntime. Without "
            "one, tensorrt's, which the others run too."
        ),
    ] = None,
    observer: Annotated[
        str,
        typer.Option(
            help="How each activation's range is chosen: mse, percentile, minmax, entropy, or auto "
            "(the best of these for the output of the layer)."
        ),
    ] = "mse",
    percentile: Annotated[
        float | None, typer.Option(help="Percentage kept by --observer percentile (99.99).")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Type of the weights: int8, int8-pairs, int7 or int4. int8-pairs is INT8 that "
            "does not overflow on x86 processors without VNNI (default: int8, or int8-pairs where "
            "the command runs on one, unless --target is tensorrt); int7 is INT8 from -63 to 63, "
            "for runtimes that add other pairs than OpenVINO and onnxruntime."
        ),
    ] = None,
    int4_share: Annotated[
        float | None,
        typer.Option(
            help="With --weights int4: the share of all weights that become INT4, at least. The "
            "layers whose INT4 weights cost the most for their size, by measurement, keep INT8. "
            "1: all are INT4 (default: 0.85)."
        ),
    ] = None,
    weight_group: Annotated[
        int | None,
        typer.Option(
            help="With --weights int4: input channels that share a scale, such as 64 or 128 "
            "(default: one scale per output channel)."
        ),
    ] = None,
    symmetric: Annotated[
        bool | None,
        typer.Option(
            "--symmetric/--asymmetric",
            help="Activations without or with zero points, on OpenVINO (default: with, but for "
            "those that a measurement finds to make the network slower).",
        ),
    ] = None,
    activations: Annotated[
        str, typer.Option(help="Type of the activations: int8, int16 or float (weights only).")
    ] = "int8",
    rounding: Annotated[
        str | None,
        typer.Option(
            help="How weights are rounded: nearest, gptq, adaround or auto, the best for each "
            "layer (default: auto for int4, nearest otherwise)."
        ),
    ] = None,
    keep_float: KeepFloatOption = None,
    prefer: Annotated[
        str | None,
        typer.Option(
            help="Keep layers in float by measured time and error: speed, balanced (up to 6 % "
            "slower) or quality (up to 20 %). Without it these do: small last layers and "
            "vectors, what makes the network slower than in float, and a layer that makes most "
            "of the noise of an output below 30 dB."
        ),
    ] = None,
    within_ms: Annotated[
        float | None,
        typer.Option(
            help="Instead of --prefer: the most quality that keeps this latency on the target, "
            "in ms, measured here."
        ),
    ] = None,
    timing: Annotated[
        bool,
        typer.Option(
            help="Time the INT8 network beside the float one, where the target runs here."
        ),
    ] = True,
    contract: Annotated[
        list[str] | None,
        typer.Option(
            help="What a head (or output) must keep, with --prefer or --within-ms: HEAD=DB (SQNR "
            "at least), HEAD:agreement=SHARE (of its decisions), or HEAD:drop=VALUE (of its "
            "metric, with --labels); repeatable. Exit code 1 where it cannot."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Labelled pictures for contracts on a head's metric: scenes[:COUNT] (rendered), "
            "coco:PICTURES:FILE.json, cityscapes:PICTURES:MASKS or camvid:PICTURES:MASKS."
        ),
    ] = None,
    samples: SamplesOption = 32,
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
    """Turn a float network into an INT8 one: Q/DQ pairs, per-channel weights, calibrated ranges."""
    from dataclasses import replace

    from artifacts.atomic import require_writable, write_json
    from framefit.progress import show_progress
    from framefit.quantize_choices import choose_weights, warn_of_pairs
    from framefit.quantize_job import quantize_file

    if json_file is not None:
        require_writable(json_file)
    settings = read_settings(
        observer,
        percentile,
        rounding,
        contract,
        target=target or DEFAULT_TARGET,
        weights=weights or "int8",
        int4_share=int4_share,
        weight_group=weight_group,
        symmetric=symmetric,
        activations=activations,
        keep_float=tuple(keep_float or ()),
        prefer=prefer,
        within_ms=within_ms,
    )
    if weights is None:
        settings = replace(settings, weights=choose_weights(target))
    options = model_options(input_shape, factory, state, sequence_frames, trust=trust)
    with show_progress() as progress:
        outcome = quantize_file(
            model,
            data,
            settings,
            out=out,
            samples=samples,
            model_options=options,
            spec_options=spec_values(color, pixel_scale, mean, std, resize),
            progress=progress,
            labels=labels,
            is_timed=timing,
        )
    if weights is None:
        warn_of_pairs(settings.weights, target)
    if json_file is not None:
        write_json(json_file, outcome.to_dict())
    show_outcome(outcome, is_verbose=verbose)
    if outcome.result.precision is not None and outcome.result.precision.broken:
        raise typer.Exit(1)


def read_settings(
    observer: str,
    percentile: float | None,
    rounding: str | None,
    contracts: list[str] | None,
    **values: Any,
) -> "QuantizeSettings":
    """Turns the options into settings, refusing what does not exist.

    Raises:
        InputError: an option has an unknown value, or does not belong to another.
    """
    from artifacts.errors import InputError
    from compress.quantize.observers import OBSERVERS
    from compress.quantize.rounding import ROUNDINGS
    from compress.quantize.search.contract import Contract
    from compress.quantize.settings import QuantizeSettings

    if observer not in OBSERVERS:
        raise InputError(f"--observer is '{observer}'", f"one of {', '.join(OBSERVERS)}")
    if rounding is not None and rounding not in ROUNDINGS:
        raise InputError(f"--rounding is '{rounding}'", f"one of {', '.join(ROUNDINGS)}")
    if percentile is not None and observer != "percentile":
        raise InputError(f"--percentile was given with --observer {observer}", "percentile")
    parameters = {} if percentile is None else {"percent": percentile}
    return QuantizeSettings(
        observer=OBSERVERS[observer](**parameters),
        rounding=None if rounding is None else ROUNDINGS[rounding](),
        contracts=tuple(Contract.parse(text) for text in contracts or ()),
        **values,
    )
