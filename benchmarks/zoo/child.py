"""One network of the zoo through every stage, in a process of its own."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from artifacts.onnx_file import load_onnx, save_onnx
from artifacts.synthetic_pictures import draw_pictures
from benchmarks.interleaved import take_turns
from benchmarks.stages import name_problem, time_stage
from benchmarks.zoo.build import build_network
from benchmarks.zoo.networks import ZooNetwork
from compress.compare import OutputComparison
from compress.model_runner import open_runner
from compress.quantize.api import quantize_model
from compress.quantize.observers import MinMax
from compress.quantize.settings import QuantizeSettings
from compress.sqnr import EXACT_DB
from engines.runtimes import open_session
from engines.session import Session
from framefit.paired_times import PairedTimes
from framefit.quantize_choices import choose_clock, choose_weights, settle_forms

RUNTIME = "openvino"
"""Where the files of all targets run."""

SAMPLES = 4
CAPABILITY = 89
PARITY_MARGIN_DB = 3.0
"""Two runtimes round differently, but by less than quantization itself costs: parity may lie this
much below the quality, which both are measured on."""

ENOUGH_DB = 60.0
"""Parity beyond this is not asked for: float32 itself gives little more."""

TURNS = 20


def measure_network(network: ZooNetwork, targets: Sequence[str]) -> dict[str, Any]:
    """Returns the row of one network; `problem` names what stopped it, and where."""
    row: dict[str, Any] = {"name": network.name, "size": network.size, "seconds": {}}
    with TemporaryDirectory() as folder, name_problem(row):
        _run_stages(network, targets, Path(folder), row)
    return row


def _run_stages(
    network: ZooNetwork, targets: Sequence[str], folder: Path, row: dict[str, Any]
) -> None:
    paths = {name: folder / f"{name}.onnx" for name in ("float", *targets)}
    with time_stage(row, "network"):
        module = build_network(network)
        row["parameters_m"] = sum(item.numel() for item in module.parameters()) / 1e6
    with time_stage(row, "export"):
        row["exporter_refusals"] = []
        _export(module, network, paths["float"], row)
    del module
    samples = draw_samples(network)
    model = load_onnx(paths["float"])
    row["nodes"] = len(model.graph.node)
    row["quality_db"], row["layers"], row["stays_float"] = {}, {}, {}
    for target in targets:
        with time_stage(row, f"quantize for {target}"):
            settings = settle_forms(quick_settings(target))
            clock = choose_clock(settings, is_timed=True)
            result = quantize_model(model, samples, settings, clock=clock)
            save_onnx(result.model, paths[target], metadata={})
        row["quality_db"][target] = min(result.outputs_db.values(), default=EXACT_DB)
        row["layers"][target] = len(result.layers)
        if result.precision is not None:
            row["stays_float"][target] = len(result.precision.float_nodes)
    with time_stage(row, "lint"):
        row["lint"] = _lint(paths[targets[0]])
    with time_stage(row, "build"):
        row["plan_bytes"] = _build(paths[targets[0]])
    with time_stage(row, "run"):
        row["parity_db"], row["latency_ms"] = _run(paths, samples)
    row["stage"] = "done"
    _judge(row)


def quick_settings(target: str) -> QuantizeSettings:
    """Returns settings that place as the defaults do, without the work that is for quality.

    Files for TensorRT run on OpenVINO here too, and have weights that it computes as they say.
    """
    return QuantizeSettings(
        target=target,
        observer=MinMax(),
        weights=choose_weights(RUNTIME),
        equalization=False,
        bias_correction=False,
    )


def _judge(row: dict[str, Any]) -> None:
    """Says where the outcome is not what it has to be, though nothing was raised."""
    if not row["lint"]["is_buildable"]:
        row["problem"] = "lint: refused what TensorRT-RTX builds"
    for target, parity_db in row["parity_db"].items():
        if not parity_db >= min(row["quality_db"][target], ENOUGH_DB) - PARITY_MARGIN_DB:
            row["problem"] = (
                f"parity: OpenVINO gives {parity_db:.1f} dB of what the {target} file says"
            )


def _export(module: torch.nn.Module, network: ZooNetwork, path: Path, row: dict[str, Any]) -> None:
    from export.to_onnx import export_onnx

    shape = (1, 3, network.size, network.size)
    export_onnx(module, path, input_shape=shape, notify=row["exporter_refusals"].append)


def draw_samples(network: ZooNetwork) -> list[dict[str, Any]]:
    """Returns the calibration samples, which parity is measured on as well."""
    rng = np.random.default_rng(1)
    shape = (1, 3, network.size, network.size)
    return [{"input": draw_pictures(shape, rng)} for _ in range(SAMPLES)]


def _lint(path: Path) -> dict[str, Any]:
    from export.lint import lint_file

    return lint_file(path, target="tensorrt-rtx").to_dict()


def _run(
    paths: dict[str, Path], samples: list[dict[str, Any]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Runs float and INT8 files on OpenVINO.

    Returns:
        per INT8 file the SQNR of OpenVINO's outputs against what it says, of the worst output; per
        file its latency in ms: that of the float file, and by their ratios those of the others.
    """
    with ExitStack() as stack:
        sessions = {
            name: stack.enter_context(open_session(path, RUNTIME)) for name, path in paths.items()
        }
        parity_db = {
            name: _parity_db(sessions[name], path, samples)
            for name, path in paths.items()
            if name != "float"
        }
        times = PairedTimes(take_turns(list(sessions.values()), samples[0], TURNS))
    latency_ms = {name: ns / 1e6 for name, ns in zip(sessions, times.latencies, strict=True)}
    return parity_db, latency_ms


def _parity_db(fast: Session, path: Path, samples: list[dict[str, Any]]) -> float:
    comparisons: dict[str, OutputComparison] = {}
    run_exactly = open_runner(load_onnx(path))
    for sample in samples:
        got = fast.run(sample)
        for name, value in run_exactly(sample).items():
            comparisons.setdefault(name, OutputComparison()).update(value, got[name])
    return min(item.result()["sqnr_db"] for item in comparisons.values())


def _build(path: Path) -> int:
    from export.to_trt import PlanSettings, build_plans

    settings = PlanSettings(int8=True, sm=(CAPABILITY,), flavour="tensorrt-rtx", timeout_s=300.0)
    (plan,) = build_plans(path, settings=settings)
    return plan.manifest.plan_bytes
