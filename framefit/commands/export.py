"""`framefit export`: from a network's file to ONNX, from there to a TensorRT plan, and lint."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from artifacts.wording import count_of
from framefit.commands.lint import lint
from framefit.commands.options import (
    ColorOption,
    FactoryOption,
    InputShapeOption,
    JsonOption,
    MeanOption,
    PixelScaleOption,
    ResizeOption,
    StdOption,
    TrustOption,
    VerboseOption,
    spec_values,
)

if TYPE_CHECKING:
    from export.to_trt import PlanResult

app = typer.Typer(no_args_is_help=True, help="Export to ONNX and TensorRT.")
app.command("lint")(lint)

TRT_HELP = """Build a TensorRT plan, with its manifest beside it.

The network is first made strongly typed: Q/DQ where it is INT8, FP16 casts elsewhere. That network
is kept beside the plan as MODEL.trt.onnx, to build it on another machine. TensorRT-RTX needs no GPU
and puts all compute capabilities into one plan; TensorRT builds for the GPU in the machine.

TensorRT 11 removed the flags of weak typing. What does their work here:

\b
  --int8 with a calibrator, --calib   compress quantize MODEL --data CALIB, then --int8
  --fp16, --best                      the default; --no-fp16 switches it off
  --layerPrecisions, setPrecision     --keep-fp32 NODE; compress quantize --keep-float NODE
  --inputIOFormats, --outputIOFormats inputs and outputs stay as they are in the ONNX file
"""


@app.command("onnx")
def export_onnx_command(
    model: Annotated[
        Path,
        typer.Argument(help="The network: .pt, .safetensors or .pt2; with --output .onnx too."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write (default: MODEL's name with .onnx, here)."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An output that the file has, of an .onnx also a tensor inside; repeatable "
            "(default: all outputs).",
        ),
    ] = None,
    factory: FactoryOption = None,
    input_shape: InputShapeOption = None,
    trust: TrustOption = False,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    json_file: JsonOption = None,
) -> None:
    """Export a network to ONNX: static shapes, named outputs, verified against the network."""
    import json

    import onnx

    from artifacts.atomic import write_json
    from artifacts.onnx_metadata import SETTINGS_KEY, read_metadata
    from framefit.export_job import export_onnx_file
    from framefit.model_source import ModelOptions
    from framefit.table import print_table

    path = export_onnx_file(
        model,
        out,
        model_options=ModelOptions(tuple(input_shape or ()), factory, trust),
        spec_options=spec_values(color, pixel_scale, mean, std, resize),
        outputs=output or (),
    )
    is_cut = model.suffix.lower() == ".onnx"
    settings = {} if is_cut else json.loads(read_metadata(onnx.load(path))[SETTINGS_KEY])
    if json_file is not None:
        written = {"model": str(model), "out": str(path), "outputs": output, **settings}
        write_json(json_file, written)
    if not is_cut:
        print_table(
            ("output", "largest difference from PyTorch"),
            ((name, f"{error:.3g}") for name, error in settings["parity_max_abs"].items()),
        )
    done = f"ends at {', '.join(output or ())}" if is_cut else f"exported by {settings['exporter']}"
    typer.echo(f"{path}: {done}, {path.stat().st_size / 1e6:.2f} MB")


@app.command("trt", help=TRT_HELP)
def export_trt_command(
    model: Annotated[
        Path | None, typer.Argument(help="The .onnx; by default the newest of the workspace.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Insist on a network that compress quantize made.")
    ] = False,
    fp16: Annotated[bool, typer.Option(help="Compute in FP16 outside the Q/DQ.")] = True,
    sm: Annotated[
        list[int] | None,
        typer.Option(help="Compute capability, 86 for 8.6; repeatable (RTX default: 86 and 89)."),
    ] = None,
    flavour: Annotated[
        str, typer.Option(help="tensorrt, tensorrt-rtx, or auto: tensorrt where it has a GPU.")
    ] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="The plan to write (default: MODEL's name with .plan, here)."),
    ] = None,
    keep_fp32: Annotated[
        list[str] | None, typer.Option(help="Name of a node that stays in FP32; repeatable.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Pictures or .npz on which FP16 is checked (default: random input)."),
    ] = None,
    timing_cache: Annotated[
        Path | None, typer.Option(help="Kernel timings kept between builds (tensorrt only).")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Longest time of the build, seconds.")] = 1800.0,
    input_shape: InputShapeOption = None,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    json_file: JsonOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Build a TensorRT plan; see TRT_HELP."""
    from dataclasses import asdict

    from artifacts.atomic import write_json
    from export.to_trt import PlanSettings
    from framefit.export_job import export_plan
    from framefit.progress import show_progress

    settings = PlanSettings(
        int8=int8,
        fp16=fp16,
        sm=tuple(sm or ()),
        flavour=flavour,
        keep_fp32=tuple(keep_fp32 or ()),
        timing_cache=timing_cache,
        timeout_s=timeout,
    )
    with show_progress() as progress:
        result = export_plan(
            model,
            out,
            settings,
            data=data,
            input_shapes=tuple(input_shape or ()),
            spec_options=spec_values(color, pixel_scale, mean, std, resize),
            progress=progress,
        )
    if json_file is not None:
        write_json(json_file, {"plan": str(result.path), **asdict(result.manifest)})
    show_plan(result, is_verbose=verbose)


def show_plan(result: "PlanResult", *, is_verbose: bool) -> None:
    """Prints what was built; why nodes stay in FP32 only where asked for."""
    from framefit.table import print_table

    manifest, precision = result.manifest, result.precision
    if precision is not None:
        together = precision.int8_sqnr_db or {} if precision.is_on_samples else {}
        print_table(
            ("output", "SQNR dB of FP16 alone", "with int8, against float"),
            (
                (name, f"{db:.1f}", f"{together[name]:.1f}" if name in together else "-")
                for name, db in precision.sqnr_db.items()
            ),
        )
        where = "the samples" if precision.is_on_samples else "random input"
        nodes = ", ".join(f"{count} {kind}" for kind, count in precision.counts.items())
        typer.echo(f"checked on {where}; nodes: {nodes}")
        if precision.int8_sqnr_db and not precision.is_on_samples:
            typer.echo(
                "int8 is not judged on random input, for which its ranges are not made: give --data"
            )
        if is_verbose:
            for item in precision.kept:
                typer.echo(f"stays in fp32: {item.node} ({item.operator}): {item.reason}")
            for name in precision.refitted:
                typer.echo(f"tiny scales raised to FP16's next value: {name}")
        elif precision.kept:
            nodes = count_of(len(precision.kept), "node")
            typer.echo(f"{nodes} in fp32; --verbose says why")
    capabilities = ", ".join(str(value) for value in manifest.compute_capabilities)
    typer.echo(f"{result.onnx_path}: ready to build elsewhere")
    typer.echo(
        f"{result.path}: {manifest.flavour} {manifest.tensorrt_version}, compute capability"
        f" {capabilities}, {manifest.plan_bytes / 1e6:.2f} MB"
    )
