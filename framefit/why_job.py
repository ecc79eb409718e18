"""The work of `framefit engines profile` and `roofline`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from engines.layer_profile import profile_layers
from engines.runtimes import SessionSettings, default_runtime
from engines.target import list_targets, load_target
from framefit.engines_job import bench_networks
from framefit.hang_watch import HangWatch
from latency_budget.clock import MonotonicClock
from latency_budget.why.advice import advise
from latency_budget.why.machine_peaks import measure_machine
from latency_budget.why.node_costs import NetworkCosts, count_network
from latency_budget.why.owner_times import OwnerTimes, sum_by_owner
from latency_budget.why.roofline import Machine, Prediction, Walls, find_walls, predict

Progress = Callable[[str, int, int], None]

TIMED_RUNS = 50
NO_ROOFLINE = ("cpu",)
"""Targets whose peaks differ from machine to machine: this machine's are measured instead."""


@dataclass(frozen=True, kw_only=True)
class RooflineResult:
    """A network under the rooflines.

    Attributes:
        costs: what it computes and moves.
        machine: this machine, None where it was not measured.
        walls: of this machine.
        measured_s: the network's median time here; None where it was not measured.
        advice: what moves the wall; of this machine, or of the first target.
        predictions: for every target asked for. Never measured.
    """

    costs: NetworkCosts
    machine: Machine | None
    walls: Walls | None
    measured_s: float | None
    advice: tuple[str, ...]
    predictions: tuple[Prediction, ...]

    @property
    def achieved(self) -> float | None:
        """Attainable over measured time; None where this machine was not measured."""
        if self.walls is None or not self.measured_s:
            return None
        return self.walls.attainable_s / self.measured_s

    def to_dict(self) -> dict[str, Any]:
        """Returns everything for `--json`; times in ms, predicted ones marked."""
        costs = self.costs
        result: dict[str, Any] = {
            "macs": costs.macs,
            "operations": costs.operations,
            "moved_bytes": costs.moved_bytes,
            "weight_bytes": costs.weight_bytes,
            "kernels": len(costs.kernels),
            "not_counted": list(costs.unknown),
            "owners": costs.owners(),
            "kernel_costs": [
                {
                    "name": kernel.name,
                    "op_type": kernel.op_type,
                    "owner": kernel.owner,
                    "precision": kernel.precision,
                    "operations": kernel.operations,
                    "moved_bytes": kernel.moved_bytes,
                    "intensity": kernel.intensity,
                }
                for kernel in costs.kernels
            ],
            "advice": list(self.advice),
            "predictions": [prediction.to_dict() for prediction in self.predictions],
        }
        if self.machine is not None and self.walls is not None:
            result["machine"] = machine_to_dict(self.machine)
            result["wall"] = self.walls.wall
            result["attainable_ms"] = self.walls.attainable_s * 1e3
            result["measured_ms"] = None if self.measured_s is None else self.measured_s * 1e3
            result["achieved"] = self.achieved
        return result


def profile_network(
    path: Path,
    runtime: str | None,
    settings: SessionSettings,
    *,
    runs: int,
    watch: HangWatch,
    onnx_path: Path | None = None,
    heads: Mapping[str, Sequence[str]] | None = None,
) -> OwnerTimes:
    """Profiles a network per layer and sums it by owner.

    Args:
        path: an `.onnx` model or a `.plan`.
        runtime: a runtime with a profiler; None for the file's own.
        settings: threads, device, input shapes.
        runs: profiled runs.
        watch: ends the process where the runtime hangs.
        onnx_path: the network that a plan was built from.
        heads: graph outputs of each head; None for those of the model's metadata.
    """
    source = onnx_path or path
    if source.suffix.lower() != ".onnx":
        raise InputError(
            f"{path} does not say which layer belongs to which head",
            "the network that the plan was built from",
            "give it with --onnx",
        )
    model = load_onnx(source, input_shapes=dict(settings.input_shapes))
    clock = MonotonicClock()
    what = f"{runtime or default_runtime(path)} has not profiled {path}"
    with watch.during_many(what, is_cold=True) as pulse:

        def now_ns() -> int:
            pulse.cell[0] += 1
            return clock.now_ns()

        profile = profile_layers(path, runtime, settings, now_ns=now_ns, runs=runs)
    return sum_by_owner(model, profile, heads=heads, costs=count_network(model, heads))


def roofline_network(
    path: Path,
    settings: SessionSettings,
    *,
    targets: Sequence[str],
    is_measured: bool,
    runtime: str | None = None,
    progress: Progress | None = None,
) -> RooflineResult:
    """Counts a network, and places it under the rooflines of this machine and of targets.

    Args:
        path: an `.onnx` model.
        settings: threads and input shapes.
        targets: names of target profiles to predict for.
        is_measured: whether to measure this machine's peaks and the network's time on it.
        runtime: what runs the network here; None for the file's own.
        progress: told (what, done, total) between the measurements.
    """
    costs = count_network(load_onnx(path, input_shapes=dict(settings.input_shapes)))
    if not costs.operations:
        raise InputError(f"{path} computes nothing", "a network with layers")
    predictions = tuple(predict(costs, Machine.from_target(load_target(name))) for name in targets)
    machine, walls, measured_s = None, None, None
    if is_measured:
        machine = measure_machine(threads=settings.threads, progress=progress)
        walls = find_walls(costs, machine)
        with HangWatch() as watch:
            (timing,) = bench_networks(
                [path], runtime, settings, runs=TIMED_RUNS, warmup=3, watch=watch
            )
        measured_s = timing.to_dict()["p50_ms"] / 1e3
    wall = walls.wall if walls else predictions[0].wall if predictions else None
    return RooflineResult(
        costs=costs,
        machine=machine,
        walls=walls,
        measured_s=measured_s,
        advice=advise(costs, wall, walls) if wall else (),
        predictions=predictions,
    )


def known_targets() -> list[str]:
    """Returns the targets that have a roofline."""
    return [
        name
        for name in list_targets()
        if Machine.from_target(load_target(name)).peaks and name not in NO_ROOFLINE
    ]


def machine_to_dict(machine: Machine) -> dict[str, Any]:
    """Returns a machine's peaks for `--json`."""
    return {
        "name": machine.name,
        "measured": machine.is_measured,
        "peaks_ops_per_s": machine.peaks,
        "bandwidth_bytes_per_s": machine.bandwidth,
        "overhead_per_kernel_s": machine.overhead_s[0],
    }


def owner_times_to_dict(times: OwnerTimes) -> dict[str, Any]:
    """Returns a profile for `--json`; times in ms."""
    profile = times.profile
    return {
        "runtime": profile.runtime,
        "runs": profile.runs,
        "total_ms": profile.total_s * 1e3,
        "layers_ms": profile.layers_s * 1e3,
        "outside_ms": profile.outside_s * 1e3,
        "owners_ms": {owner: value * 1e3 for owner, value in times.seconds.items()},
        "unattributed_share": times.unattributed_share,
        "layers": [
            {
                "name": owned.layer.name,
                "kind": owned.layer.kind,
                "owner": owned.owner,
                "ms": owned.layer.median_s * 1e3,
                "operations": owned.operations,
                "nodes": list(owned.nodes),
            }
            for owned in times.layers
        ],
    }
