"""`framefit engines`: the runtimes of this machine, and networks on them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framefit.commands.options import (
    MORE_TIME,
    ColorOption,
    DeviceOption,
    InferenceThreadsOption,
    InferenceTimeoutOption,
    InputShapeOption,
    JsonOption,
    MeanOption,
    ModelOrPlanArgument,
    NewestOption,
    PixelScaleOption,
    ResizeOption,
    RevokedOption,
    SamplesOption,
    StdOption,
    TrustedKeyOption,
    spec_values,
)
from framefit.commands.shapes import options
from framefit.commands.why import profile, roofline

if TYPE_CHECKING:
    from engines.runtimes import SessionSettings

app = typer.Typer(no_args_is_help=True, help="List and run the installed runtimes.")
app.command()(profile)
app.command()(roofline)
app.command()(options)

Data = Annotated[
    str,
    typer.Option("--data", help="A folder of pictures, an .npz, or a dataset of framefit.toml."),
]
Runtime = Annotated[
    str | None,
    typer.Option(
        help="openvino, onnxruntime, tensorrt, or null (answers zeros, to try a pipeline); by "
        "default the file's own."
    ),
]
CudaGraph = Annotated[
    bool, typer.Option("--cuda-graph", help="Replay as one CUDA graph; an error if that fails.")
]


@app.command("list")
def list_engines(json_file: JsonOption = None) -> None:
    """Say which runtimes work on this machine, and why the others do not."""
    from dataclasses import asdict

    from artifacts.atomic import write_json
    from engines.runtimes import BACKENDS, list_runtimes
    from framefit.table import print_table

    statuses = list_runtimes()
    if json_file is not None:
        write_json(json_file, {"runtimes": [asdict(status) for status in statuses]})
    print_table(
        ("runtime", "files", "available", "version", "why not"),
        (
            (
                status.name,
                " ".join(BACKENDS[status.name].suffixes),
                "yes" if status.available else "no",
                status.version or "-",
                status.reason or "-",
            )
            for status in statuses
        ),
    )


@app.command()
def targets(json_file: JsonOption = None) -> None:
    """List the devices that framefit knows, with what runs on them."""
    from dataclasses import asdict

    from artifacts.atomic import write_json
    from engines.target import list_targets, load_target
    from framefit.table import print_table

    found = [load_target(name) for name in list_targets()]
    if json_file is not None:
        write_json(json_file, {"targets": [asdict(target) for target in found]})
    print_table(
        ("target", "device", "runtime", "--sm", "memory GB", "TB/s", "int8 TOPS", "TensorRT"),
        (
            (
                target.name,
                target.title,
                target.runtime or "-",
                str(target.compute_capability or "-"),
                "/".join(f"{size:g}" for size in target.memory_gb) or "-",
                f"{target.bandwidth_tb_s:g}" if target.bandwidth_tb_s else "-",
                f"{target.int8_tops:g}" if target.int8_tops else "-",
                "; ".join(f"{item.release}: {item.tensorrt}" for item in target.software) or "-",
            )
            for target in found
        ),
    )


@app.command()
def run(
    model: ModelOrPlanArgument,
    data: Data,
    runtime: Runtime = None,
    threads: InferenceThreadsOption = None,
    cuda_graph: CudaGraph = False,
    device: DeviceOption = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the outputs to this .npz, one array per output.")
    ] = None,
    samples: SamplesOption = 100,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    input_shape: InputShapeOption = None,
    timeout: InferenceTimeoutOption = 60.0,
    trusted_key: TrustedKeyOption = None,
    revoked: RevokedOption = None,
    newest: NewestOption = None,
    json_file: JsonOption = None,
) -> None:
    """Run a network on pictures and summarize its outputs."""
    from artifacts.atomic import write_json
    from framefit.engines_job import open_data, run_network, settle_shapes
    from framefit.hang_watch import HangWatch
    from framefit.progress import show_progress
    from framefit.table import print_table
    from framefit.trusted_models import Trust, open_trusted

    settings = read_settings(threads, cuda_graph, device, input_shape)
    spec = spec_values(color, pixel_scale, mean, std, resize)
    trust = Trust(keys=trusted_key, revoked=revoked, newest=newest)
    with (
        open_trusted(trust, model) as (opened,),
        HangWatch(timeout, MORE_TIME) as watch,
        watch.open(opened, runtime, settle_shapes(settings, opened, data)) as session,
        show_progress() as progress,
    ):
        inputs = open_data(opened, session, data, limit=samples, spec_options=spec)
        result = run_network(session, inputs, out, watch, progress)
    if json_file is not None:
        write_json(json_file, result)
    _print_session(result["session"])
    print_table(
        ("output", "shape", "type", "min", "mean", "max", "not finite"),
        (
            (
                name,
                str(item["shape"]),
                item["dtype"],
                *(_figure(item[key]) for key in ("min", "mean", "max")),
                str(item["not_finite"]),
            )
            for name, item in result["outputs"].items()
        ),
    )
    typer.echo(f"{result['samples']} samples" + (f", outputs in {out}" if out else ""))


@app.command()
def bench(
    models: Annotated[
        list[Path], typer.Argument(help="Models or plans, timed in turns so that ratios hold.")
    ],
    runtime: Runtime = None,
    threads: InferenceThreadsOption = None,
    cuda_graph: CudaGraph = False,
    device: DeviceOption = 0,
    runs: Annotated[int, typer.Option(min=1, help="Timed runs of each network.")] = 300,
    warmup: Annotated[int, typer.Option(min=0, help="Untimed runs before each turn.")] = 10,
    input_shape: InputShapeOption = None,
    timeout: InferenceTimeoutOption = 60.0,
    trusted_key: TrustedKeyOption = None,
    revoked: RevokedOption = None,
    newest: NewestOption = None,
    json_file: JsonOption = None,
) -> None:
    """Time networks back to back on random input: P50, P95, P99 (nearest rank) and the maximum.

    This is no proof of a frame budget: that needs the whole frame at the camera's rate, which
    budget-check measures.
    """
    from artifacts.atomic import write_json
    from framefit.engines_job import bench_networks
    from framefit.hang_watch import HangWatch
    from framefit.progress import show_progress
    from framefit.table import print_table
    from framefit.trusted_models import Trust, open_trusted

    settings = read_settings(threads, cuda_graph, device, input_shape)
    trust = Trust(keys=trusted_key, revoked=revoked, newest=newest)
    with (
        open_trusted(trust, *models) as opened,
        HangWatch(timeout, MORE_TIME) as watch,
        show_progress() as progress,
    ):
        timings = bench_networks(
            opened, runtime, settings, runs=runs, warmup=warmup, watch=watch, progress=progress
        )
    named = zip(timings, models, strict=True)
    results = [timing.to_dict() | {"model": str(model)} for timing, model in named]
    if json_file is not None:
        write_json(json_file, {"models": results})
    for result in results:
        _print_session(result["session"])
    first = results[0]["p50_ms"]
    print_table(
        ("model", "runs", "P50 ms", "P95 ms", "P99 ms", "max ms", "first / this"),
        (
            (
                Path(result["model"]).name,
                str(result["n"]),
                *(_figure(result[key]) for key in ("p50_ms", "p95_ms", "p99_ms", "max_ms")),
                f"{first / result['p50_ms']:.2f}x" if first and result["p50_ms"] else "-",
            )
            for result in results
        ),
    )


@app.command()
def compare(
    reference: ModelOrPlanArgument,
    data: Data,
    candidate: Annotated[
        Path | None, typer.Argument(help="The network to judge; by default REFERENCE itself.")
    ] = None,
    reference_runtime: Annotated[
        str | None, typer.Option(help="Runtime of the reference; by default the file's own.")
    ] = None,
    runtime: Runtime = None,
    threads: InferenceThreadsOption = None,
    cuda_graph: CudaGraph = False,
    device: DeviceOption = 0,
    samples: SamplesOption = 100,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    input_shape: InputShapeOption = None,
    timeout: InferenceTimeoutOption = 60.0,
    trusted_key: TrustedKeyOption = None,
    revoked: RevokedOption = None,
    newest: NewestOption = None,
    json_file: JsonOption = None,
) -> None:
    """Compare what two runtimes make of a network, or two networks as they really run.

    The settings (--threads, --cuda-graph, --device) are the candidate's.
    """
    from artifacts.atomic import write_json
    from artifacts.errors import InputError
    from compress.constant_outputs import format_sqnr
    from engines.runtimes import SessionSettings, default_runtime
    from framefit.engines_job import compare_sessions, open_data, settle_shapes
    from framefit.hang_watch import HangWatch
    from framefit.progress import show_progress
    from framefit.table import print_table
    from framefit.trusted_models import Trust, open_trusted

    settings = read_settings(threads, cuda_graph, device, input_shape)
    own = default_runtime(reference)
    if candidate is None and (runtime or own) == (reference_runtime or own):
        raise InputError(
            f"{reference} would be compared with itself on {runtime or own}",
            "a CANDIDATE, or another runtime",
            "give --runtime or --reference-runtime",
        )
    plain = SessionSettings(input_shapes=settings.input_shapes)
    spec = spec_values(color, pixel_scale, mean, std, resize)
    trust = Trust(keys=trusted_key, revoked=revoked, newest=newest)
    with (
        open_trusted(trust, reference, candidate or reference) as (first, second),
        HangWatch(timeout, MORE_TIME) as watch,
        watch.open(first, reference_runtime, settle_shapes(plain, first, data)) as left,
        watch.open(second, runtime, settle_shapes(settings, second, data)) as right,
        show_progress() as progress,
    ):
        inputs = open_data(first, left, data, limit=samples, spec_options=spec)
        result = compare_sessions(left, right, inputs, watch, progress)
    if json_file is not None:
        write_json(json_file, result)
    for description in result["sessions"].values():
        _print_session(description)
    print_table(
        ("output", "SQNR dB", "largest error", "agreement"),
        (
            (name, format_sqnr(item), _figure(item["max_abs"]), f"{item['agreement']:.2%}")
            for name, item in result["outputs"].items()
        ),
    )
    typer.echo(f"{result['samples']} samples")


def read_settings(
    threads: int | None, cuda_graph: bool, device: int, input_shape: list[str] | None
) -> "SessionSettings":
    """Turns the options into session settings."""
    from artifacts.onnx_inputs import parse_input_shapes
    from engines.runtimes import SessionSettings

    return SessionSettings(
        threads=threads,
        cuda_graph=cuda_graph,
        device=device,
        input_shapes=parse_input_shapes(input_shape or ()),
    )


def _print_session(description: dict[str, Any]) -> None:
    """Says on stderr what the session asked for and got."""
    parts = [f"{key} {value}" for key, value in description.items()]
    typer.echo("; ".join(parts), err=True)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
