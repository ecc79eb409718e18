"""What the forms of operators bring that OpenVINO's kernels take; a table of the page.

`python -m benchmarks.kernel_forms`, after `python -m benchmarks.package_networks`.

Each network is quantized for OpenVINO as it is and in those forms, without repairs, and timed in
turn with float in both; SiLU is written with tanh behind layers in INT8 only.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import timm
import torch
from torch import nn

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx, save_onnx
from artifacts.onnx_inputs import input_tensors
from benchmarks.machine import OtherProcesses, describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.package_networks import fetched_networks
from benchmarks.peers.judge import measure_latency
from benchmarks.prune_zoo import build_esp
from benchmarks.quantizer_choices import PAGE, RAW
from compress.compare import compare_outputs
from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement.openvino import OpenVINO
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import simplify
from engines.runtimes import open_session

ROUNDS = 100
CHANNELS = 64
LAYERS = 6


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(name, model, by_tanh) for name, model, by_tanh in _networks()]
    write_json(RAW.with_name("kernel_forms.json"), rows)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, "kernel_forms", _render(rows, others.share)))


def _networks() -> Iterator[tuple[str, onnx.ModelProto, bool]]:
    """Yields name, network, and whether its SiLUs are written with tanh."""
    torch.manual_seed(0)
    esp = build_esp()
    _randomize_slopes(esp)
    yield (
        "ESP-style road network, PReLU behind sums and concatenations",
        export_module(esp, 384),
        False,
    )
    shared = nn.PReLU(CHANNELS)
    _randomize_slopes(shared)
    yield (
        "chain of layers, one PReLU for all",
        export_module(chain_layers([shared] * LAYERS)),
        False,
    )
    gates = [nn.Hardsigmoid() for _ in range(LAYERS)]
    yield "chain of layers, HardSigmoid", export_module(chain_layers(gates)), False
    swishes = [nn.SiLU() for _ in range(LAYERS)]
    yield "chain of layers, SiLU", export_module(chain_layers(swishes)), True
    norms = [nn.Sequential(nn.GroupNorm(8, CHANNELS), nn.ReLU()) for _ in range(LAYERS)]
    yield "chain of layers, GroupNorm and ReLU", export_module(chain_layers(norms)), False
    convnext = timm.create_model("convnext_tiny", pretrained=False)
    enlarge_branches(convnext)
    yield "ConvNeXt-Tiny (timm), channels last in each block", export_module(convnext), False
    for network in fetched_networks(["NudeNet (YOLOv8n)"]):
        yield f"{network.name}, SiLU", network.load(), True


def chain_layers(activations: Sequence[nn.Module], channels: int = CHANNELS) -> nn.Module:
    """Returns Convs with a kernel of 3x3, each activation behind one of them."""
    parts: list[nn.Module] = [nn.Conv2d(3, channels, 3, 2, 1)]
    for activation in activations:
        parts += [activation, nn.Conv2d(channels, channels, 3, 1, 1)]
    return nn.Sequential(*parts)


def _randomize_slopes(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.PReLU):
            nn.init.uniform_(part.weight, 0.0, 0.5)


def enlarge_branches(module: nn.Module) -> None:
    """Gives branches, which start at a millionth, the weight that training gives them."""
    for name, weight in module.named_parameters():
        if name.endswith("gamma"):
            nn.init.uniform_(weight, 0.1, 0.5)


def export_module(
    module: nn.Module, height: int = 160, width: int | None = None
) -> onnx.ModelProto:
    """Returns a network of one picture; the width follows the height where it is not given."""
    picture = torch.zeros(1, 3, height, width or height * 5 // 3 // 32 * 32)
    with TemporaryDirectory() as folder:
        path = Path(folder, "network.onnx")
        torch.onnx.export(module.eval(), (picture,), path, dynamo=False, opset_version=17)
        return load_onnx(path)


def _measure(name: str, model: onnx.ModelProto, by_tanh: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    ((tensor, info),) = input_tensors(model).items()
    samples = [{tensor: rng.random(info.shape).astype(np.float32)} for _ in range(2)]
    settings = QuantizeSettings(
        target="openvino",
        symmetric=True,
        swish_by_tanh=by_tanh,
        equalization=False,
        input_correction=False,
    )
    graph = Graph(model)
    simplify(graph)
    OpenVINO().write_forms(graph)
    OpenVINO().write_late_forms(graph, ())
    models = {
        "float": model,
        "float, in these forms": graph.to_model(),
        "INT8, in these forms": quantize_model(model, samples, settings).model,
    }
    nothing: dict[str, Any] = dict.fromkeys(("write_forms", "write_late_forms"), lambda *_: [])
    with patch.multiple(OpenVINO, **nothing):
        models["INT8"] = quantize_model(model, samples, settings).model
    with TemporaryDirectory() as folder:
        files = {
            kind: save_onnx(item, Path(folder, f"{kind}.onnx"), metadata={})
            for kind, item in models.items()
        }
        times = measure_latency(files, ROUNDS)
        plain, written = (open_session(path, "onnxruntime") for path in list(files.values())[:2])
        outputs = compare_outputs(plain.run, written.run, samples)["outputs"]
    same_db = min(item["sqnr_db"] for item in outputs.values())
    return {"network": name, "times": times, "same_db": same_db}


def _render(rows: list[dict[str, Any]], others: float) -> list[str]:
    return [
        f"Shortest inference in ms, as exported and in these forms. Measured in one run on "
        f"{describe_machine()}; other processes took {others:.0%} of the processors' time.",
        "",
        *table_lines(
            ("network", "float", "INT8", "agreement of the float networks"),
            (
                (
                    row["network"],
                    _show(row["times"], "float"),
                    _show(row["times"], "INT8"),
                    f"{row['same_db']:.0f} dB",
                )
                for row in rows
            ),
        ),
    ]


def _show(times: dict[str, Any], kind: str) -> str:
    before, after = (times[key]["min_ms"] for key in (kind, f"{kind}, in these forms"))
    return f"{before:.2f}, {after:.2f} ({before / after:.2f}x)"


if __name__ == "__main__":
    main()
