"""`framefit engines profile` and `roofline`: why a network takes the time it takes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framefit.commands.options import (
    MORE_TIME,
    DeviceOption,
    InferenceThreadsOption,
    InferenceTimeoutOption,
    InputShapeOption,
    JsonOption,
    ModelOrPlanArgument,
    NewestOption,
    RevokedOption,
    TrustedKeyOption,
)

if TYPE_CHECKING:
    from framefit.why_job import RooflineResult


def profile(
    model: ModelOrPlanArgument,
    runtime: Annotated[
        str | None, typer.Option(help="openvino, onnxruntime or tensorrt; by default the file's.")
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option(help="The network that a plan was built from, for its heads.")
    ] = None,
    threads: InferenceThreadsOption = None,
    device: DeviceOption = 0,
    runs: Annotated[int, typer.Option(min=1, help="Profiled runs.")] = 20,
    top: Annotated[int, typer.Option(min=0, help="Slowest layers to show.")] = 10,
    input_shape: InputShapeOption = None,
    timeout: InferenceTimeoutOption = 60.0,
    trusted_key: TrustedKeyOption = None,
    revoked: RevokedOption = None,
    newest: NewestOption = None,
    json_file: JsonOption = None,
) -> None:
    """Show how long each layer takes on a runtime, summed by owner: the trunk and each head.

    A profiler slows the layers down; read the shares, not the sum.
    """
    from artifacts.atomic import write_json
    from framefit.commands.engines import read_settings
    from framefit.hang_watch import HangWatch
    from framefit.table import print_table
    from framefit.trusted_models import Trust, open_trusted
    from framefit.why_job import owner_times_to_dict, profile_network

    settings = read_settings(threads, False, device, input_shape)
    trust = Trust(keys=trusted_key, revoked=revoked, newest=newest)
    with (
        open_trusted(trust, model, onnx or model) as (opened, network),
        HangWatch(timeout, MORE_TIME) as watch,
    ):
        times = profile_network(
            opened, runtime, settings, runs=runs, watch=watch, onnx_path=onnx and network
        )
    result = owner_times_to_dict(times)
    if json_file is not None:
        write_json(json_file, result)
    layers_s = times.profile.layers_s or 1.0
    print_table(
        ("owner", "ms", "share"),
        (
            (owner, f"{seconds * 1e3:.3f}", f"{seconds / layers_s:.1%}")
            for owner, seconds in times.seconds.items()
        ),
    )
    slowest = sorted(times.layers, key=lambda owned: -owned.layer.median_s)[:top]
    print_table(
        ("layer", "kind", "owner", "ms", "GOP/s"),
        (
            (
                owned.layer.name,
                owned.layer.kind,
                owned.owner,
                f"{owned.layer.median_s * 1e3:.3f}",
                f"{owned.operations_per_s / 1e9:.1f}" if owned.operations_per_s else "-",
            )
            for owned in slowest
        ),
    )
    typer.echo(
        f"{result['runtime']}: {result['total_ms']:.2f} ms for a profiled run (median of {runs}), "
        f"{result['layers_ms']:.2f} ms of them in layers, "
        f"{times.unattributed_share:.1%} of that unattributed"
    )


def roofline(
    model: Annotated[Path, typer.Argument(help="An .onnx model.")],
    target: Annotated[
        list[str] | None,
        typer.Option(help="Predict for this target, see 'engines targets'; all by default."),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option("--measure/--no-measure", help="Measure this machine and the network on it."),
    ] = True,
    runtime: Annotated[
        str | None, typer.Option(help="Runtime of the measurement; by default the file's.")
    ] = None,
    threads: InferenceThreadsOption = None,
    input_shape: InputShapeOption = None,
    trusted_key: TrustedKeyOption = None,
    revoked: RevokedOption = None,
    newest: NewestOption = None,
    json_file: JsonOption = None,
) -> None:
    """Name the wall that a network stands at (compute, bandwidth, overhead), and what moves it.

    Times on other devices are predicted from published peaks, as intervals, and not measured.
    """
    from artifacts.atomic import write_json
    from framefit.commands.engines import read_settings
    from framefit.progress import show_progress
    from framefit.trusted_models import Trust, open_trusted
    from framefit.why_job import known_targets, roofline_network

    trust = Trust(keys=trusted_key, revoked=revoked, newest=newest)
    with open_trusted(trust, model) as (opened,), show_progress() as progress:
        result = roofline_network(
            opened,
            read_settings(threads, False, 0, input_shape),
            targets=target or known_targets(),
            is_measured=measure,
            runtime=runtime,
            progress=progress,
        )
    if json_file is not None:
        write_json(json_file, result.to_dict())
    _print_costs(result)
    _print_machine(result)
    _print_predictions(result)


def _print_costs(result: "RooflineResult") -> None:
    from framefit.table import print_table

    costs = result.costs
    print_table(
        ("owner", "million MACs", "million operations", "MB moved", "operations/byte"),
        (
            (
                owner,
                f"{part['macs'] / 1e6:.1f}",
                f"{part['operations'] / 1e6:.1f}",
                f"{part['moved_bytes'] / 1e6:.2f}",
                f"{part['operations'] / part['moved_bytes']:.1f}" if part["moved_bytes"] else "-",
            )
            for owner, part in (
                *costs.owners().items(),
                (
                    "all",
                    {
                        "macs": costs.macs,
                        "operations": costs.operations,
                        "moved_bytes": costs.moved_bytes,
                    },
                ),
            )
        ),
    )
    if costs.unknown:
        typer.echo(f"not counted: {', '.join(costs.unknown)}")


def _print_machine(result: "RooflineResult") -> None:
    machine, walls = result.machine, result.walls
    if machine is None or walls is None:
        return
    peaks = ", ".join(f"{name} {value / 1e9:.0f} GOP/s" for name, value in machine.peaks.items())
    typer.echo(f"{machine.name}, measured: {peaks}, {(machine.bandwidth or 0) / 1e9:.1f} GB/s")
    typer.echo(
        f"wall: {walls.wall} (compute {walls.compute_s * 1e3:.2f} ms, bandwidth "
        f"{walls.bandwidth_s * 1e3:.2f} ms, overhead {walls.overhead_s * 1e3:.2f} ms of "
        f"{walls.kernels} kernels)"
    )
    if result.measured_s and result.achieved:
        typer.echo(
            f"measured {result.measured_s * 1e3:.2f} ms, attainable {walls.attainable_s * 1e3:.2f}"
            f" ms: {result.achieved:.0%} of the roofline achieved"
        )


def _print_predictions(result: "RooflineResult") -> None:
    from framefit.table import print_table

    for line in result.advice:
        typer.echo(f"- {line}")
    if not result.predictions:
        return
    print_table(
        ("target (predicted, not measured)", "at least ms", "at most ms", "wall"),
        (
            (
                item.target,
                f"{item.low_s * 1e3:.3g}",
                "-" if item.high_s is None else f"{item.high_s * 1e3:.3g}",
                item.wall,
            )
            for item in result.predictions
        ),
    )
    for line in dict.fromkeys(line for item in result.predictions for line in item.assumptions):
        typer.echo(f"assumed: {line}", err=True)
