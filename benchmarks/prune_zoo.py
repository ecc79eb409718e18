"""Prunes 25 timm architectures and the two-head road network at 30 % and 50 %.

Each result has to equal the zeroed original in float64, to run, to export to ONNX, and to be
quantized; what fails is named. Random weights, small inputs. `python -m benchmarks.prune_zoo`.
"""

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from artifacts.atomic import write_json
from artifacts.errors import FramefitError
from artifacts.onnx_file import load_onnx
from artifacts.onnx_inputs import input_tensors
from compress.prune.api import PruneResult, PruneSettings, RatioGoal, prune_module
from compress.prune.select import WidthLimits
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from export.to_onnx import export_onnx

ROOT = Path(__file__).parents[1]
OUT = Path("out/bench/prune_zoo.json")
RATIOS = (0.3, 0.5)
SIZES = {
    "resnet18": 64,
    "resnext50_32x4d": 64,
    "regnetx_002": 64,
    "regnety_002": 64,
    "densenet121": 64,
    "vgg11_bn": 64,
    "mobilenetv2_100": 64,
    "mobilenetv3_small_100": 64,
    "mobilenetv4_conv_small": 64,
    "efficientnet_b0": 64,
    "efficientnet_lite0": 64,
    "ghostnet_100": 64,
    "mixnet_s": 64,
    "rexnet_100": 64,
    "res2net50_26w_4s": 64,
    "dla34": 64,
    "hrnet_w18_small": 64,
    "cspdarknet53": 64,
    "ese_vovnet19b_dw": 64,
    "skresnet18": 64,
    "resnest14d": 64,
    "convnext_atto": 64,
    "poolformer_s12": 64,
    "vit_tiny_patch16_224": 224,
    "swin_tiny_patch4_window7_224": 224,
    "levit_128s": 224,
    "mobilevit_xxs": 64,
    "edgenext_xx_small": 64,
    "nf_resnet50": 64,
}


def build_esp() -> nn.Module:
    """Returns the two-head road network of the tests."""
    path = ROOT / "tests" / "compress" / "prune" / "esp_network.py"
    spec = importlib.util.spec_from_file_location("esp_network", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network: nn.Module = module.build_esp_network()
    return network


def build_timm(name: str) -> nn.Module:
    """Returns an architecture with random weights and BatchNorm statistics that matter."""
    import timm

    torch.manual_seed(0)
    network: nn.Module = timm.create_model(name).eval()
    for part in network.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    return network


def measure_network(build: Callable[[], nn.Module], size: int, ratio: float) -> dict[str, Any]:
    """Prunes one network; returns what passed, and the reason where something did not."""
    row: dict[str, Any] = {"ratio": ratio, "passed": []}
    start = time.perf_counter()
    shape = (1, 3, size, size)
    try:
        network = build()
        settings = PruneSettings(importance="magnitude", limits=WidthLimits(round_to=1, fewest=2))
        example = (torch.rand(shape, generator=torch.Generator().manual_seed(0)),)
        result = prune_module(network, example, RatioGoal(ratio), settings)
        row |= _describe(result)
        row["passed"].append("prune")
        with torch.no_grad():
            result.module(*example)
        row["passed"].append("forward")
        with TemporaryDirectory() as folder:
            path = Path(folder, "pruned.onnx")
            export_onnx(result.module, path, input_shape=shape)
            row["passed"].append("export")
            model = load_onnx(path)
            rng = np.random.default_rng(0)
            sample = {
                name: rng.random(item.shape, np.float32)
                for name, item in input_tensors(model).items()
            }
            quantize_model(model, [sample, sample], QuantizeSettings())
            row["passed"].append("quantize")
    except FramefitError as error:
        row["reason"] = str(error)[:300]
    row["seconds"] = round(time.perf_counter() - start, 1)
    return row


def _describe(result: PruneResult) -> dict[str, Any]:
    reasons: dict[str, int] = {}
    for item in result.left_alone:
        kind = item.reason.split(" (")[0].split("'")[0].strip() or item.reason
        reasons[kind] = reasons.get(kind, 0) + item.channels
    return {
        "difference": max(result.differences),
        "channels": [
            sum(item.before for item in result.widths),
            sum(item.after for item in result.widths),
        ],
        "macs_share": result.macs[1] / result.macs[0],
        "left_alone": reasons,
    }


def measure_zoo(names: list[str], path: Path = OUT) -> list[dict[str, Any]]:
    """Measures networks one after the other, keeping the figures after each."""
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []
    done = {(row["network"], row["ratio"]) for row in rows}
    for name in names:
        for ratio in RATIOS:
            if (name, ratio) in done:
                continue
            if name == "esp_two_heads":
                row = measure_network(build_esp, SIZES.get(name, 64), ratio)
            else:
                row = measure_network(lambda name=name: build_timm(name), SIZES[name], ratio)
            rows.append({"network": name, **row})
            write_json(path, rows)
            print(json.dumps(rows[-1]), flush=True)
    return rows


def render(rows: list[dict[str, Any]]) -> list[str]:
    """Returns the lines of the table of docs/pruning.md."""
    lines = [
        "| network | ratio | channels | MACs left | from zeroed, float64 | passed |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        channels = " → ".join(map(str, row.get("channels", ["-"])))
        passed = ", ".join(row["passed"]) + (f"; {row['reason']}" if "reason" in row else "")
        lines.append(
            f"| {row['network']} | {row['ratio']:g} | {channels} | "
            f"{row.get('macs_share', 1):.0%} | {row.get('difference', float('nan')):.0e} | "
            f"{passed} |"
        )
    return lines


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["esp_two_heads", *SIZES]
    print("\n".join(render(measure_zoo(chosen))))
