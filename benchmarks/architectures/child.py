"""One architecture through quantization, OpenVINO and pruning, in a process of its own."""

from typing import Any

import numpy as np
import torch
from torch import nn

import framefit
from artifacts.synthetic_pictures import draw_pictures
from benchmarks.architectures.architecture import Architecture
from benchmarks.own_processes import Row
from benchmarks.stages import name_problem, time_stage
from benchmarks.zoo.build import wake_scales
from framefit.quantize_choices import choose_weights
from framefit.target_check import check_on_target

RUNTIME = "openvino"
SAMPLES = 8
RATIO = 0.3
_SETTLING_MOMENTUM = 0.3
_BATCH_NORMS = nn.modules.batchnorm._BatchNorm


def measure_architecture(architecture: Architecture) -> Row:
    """Returns the row of one network; `problem` names what stopped it, and where."""
    row: Row = {
        "name": architecture.name,
        "package": architecture.package,
        "seconds": {},
        "stage": "build",
    }
    with name_problem(row):
        _run_stages(architecture, row)
    return row


def _run_stages(architecture: Architecture, row: Row) -> None:
    data = draw_data(architecture)
    with time_stage(row, "build"):
        module = _build(architecture, data)
    with time_stage(row, "export"):
        model = framefit.export(module, data)
    names = [item.name for item in model.graph.input]
    feeds = [
        {name: value.numpy() for name, value in zip(names, item, strict=True)} for item in data
    ]
    with time_stage(row, "quantize"):
        settings = framefit.QuantizeSettings(target=RUNTIME, weights=choose_weights(RUNTIME))
        result = framefit.quantize(model, feeds, settings)
    row["layers"], row["stays_float"] = len(result.layers), 0
    if result.precision is not None:
        row["stays_float"] = len(result.precision.float_nodes)
        row["float_ms"] = result.precision.float_ms
        row["int8_ms"] = result.precision.chosen.latency_ms
    with time_stage(row, "run"):
        check = check_on_target(model, result.model, feeds, RUNTIME, {})
    row["outputs_db"], row["said_db"] = check.outputs_db, check.said_db
    with time_stage(row, "prune"):
        pruned = framefit.prune(module, data, framefit.PruneGoal(ratio=RATIO))
    row["macs"] = pruned.macs
    row["stage"] = "done"


def draw_data(architecture: Architecture) -> list[tuple[torch.Tensor, ...]]:
    """Returns samples: blobs of every size for each input."""
    rng = np.random.default_rng(1)
    return [
        tuple(
            torch.from_numpy(draw_pictures(architecture.shape, rng))
            for _ in range(architecture.inputs)
        )
        for _ in range(SAMPLES)
    ]


def _build(architecture: Architecture, data: list[tuple[torch.Tensor, ...]]) -> nn.Module:
    """Returns the network in evaluation mode, with batch statistics of its data."""
    torch.manual_seed(0)
    module = architecture.build().eval().requires_grad_(requires_grad=False)
    wake_scales(module, torch.Generator().manual_seed(0))
    _settle(module, data)
    return module


def _settle(module: nn.Module, data: list[tuple[torch.Tensor, ...]]) -> None:
    """Fits batch statistics to the data, two samples at a time, or one where it takes no two.

    Some networks take neither in training mode; they keep the statistics that they came with.
    """
    norms: list[Any] = [part for part in module.modules() if isinstance(part, _BATCH_NORMS)]
    pairs = [
        tuple(map(torch.cat, zip(*both, strict=True)))
        for both in zip(data[::2], data[1::2], strict=True)
    ]
    for batches in (pairs, data):
        for norm in norms:
            norm.train()
            norm.momentum = _SETTLING_MOMENTUM
        try:
            with torch.no_grad():
                for batch in batches:
                    module(*batch)
        except (ValueError, RuntimeError):
            continue
        finally:
            module.eval()
        return
