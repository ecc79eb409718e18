"""What sums on a trunk without activations cost and bring in integers; a table of the page.

`python -m benchmarks.trunk_sums`, after `python -m benchmarks.package_networks`.

Each network is quantized for OpenVINO with the sums x + f(x) that no activation cuts in integers
and in float, and both files are timed in turn. CenterFace is trained and judged on held-out
pictures; those of timm have random weights, and are judged on noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import timm
import torch

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import input_tensors, save_onnx
from artifacts.ownership import read_heads, read_parts
from benchmarks.kernel_forms import enlarge_branches, export_module
from benchmarks.machine import OtherProcesses, describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.package_networks import fetched_networks
from benchmarks.peers.judge import measure_latency
from benchmarks.quantizer_choices import PAGE, RAW
from compress.head_judge import HeadJudge
from compress.quantize.api import quantize_model
from compress.quantize.placement import layers
from compress.quantize.settings import QuantizeSettings

TIMM = ("convnext_tiny", "edgenext_xx_small", "mobilenetv2_100")
SIZE = 224
SAMPLES = 8
ROUNDS = 100


@dataclass(frozen=True)
class Case:
    """A network with calibration samples and others."""

    name: str
    model: onnx.ModelProto
    calibration: list[dict[str, np.ndarray]]
    held_out: list[dict[str, np.ndarray]]


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(case) for case in _cases()]
    write_json(RAW.with_name("trunk_sums.json"), rows)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, "trunk_sums", _render(rows, others.share)))


def _cases() -> Iterator[Case]:
    for network in fetched_networks(["CenterFace"]):
        model = network.load()
        yield Case(network.name, model, *network.samples(model))
    for name in TIMM:
        torch.manual_seed(0)
        module = timm.create_model(name, pretrained=False)
        enlarge_branches(module)
        model = export_module(module, SIZE, SIZE)
        ((tensor, info),) = input_tensors(model).items()
        rng = np.random.default_rng(0)
        noise = [
            {tensor: rng.standard_normal(info.shape).astype(np.float32)} for _ in range(2 * SAMPLES)
        ]
        yield Case(f"{name}, random weights", model, noise[:SAMPLES], noise[SAMPLES:])


def _measure(case: Case) -> dict[str, Any]:
    settings = QuantizeSettings(target="openvino", symmetric=True)
    with patch.object(layers, "_is_trunk", lambda *_: False):
        models = {"integers": quantize_model(case.model, case.calibration, settings).model}
    models["float"] = quantize_model(case.model, case.calibration, settings).model
    heads = read_heads(case.model) | read_parts(case.model)
    judge = HeadJudge(case.model, case.held_out, heads)
    with TemporaryDirectory() as folder:
        files = {
            kind: save_onnx(model, Path(folder, f"{kind}.onnx"), metadata={})
            for kind, model in models.items()
        }
        times = measure_latency(files, ROUNDS)
    quality = {kind: judge.measure(model) for kind, model in models.items()}
    return {"network": case.name, "times": times, "sqnr_db": quality}


def _render(rows: list[dict[str, Any]], others: float) -> list[str]:
    return [
        f"Sums in integers, in float. Measured in one run on {describe_machine()}; other processes "
        f"took {others:.0%} of the processors' time.",
        "",
        *table_lines(
            ("network", "shortest inference, ms", "SQNR of each output, dB"),
            (
                (
                    row["network"],
                    ", ".join(f"{item['min_ms']:.2f}" for item in row["times"].values()),
                    "; ".join(
                        f"{row['sqnr_db']['integers'][head]:.1f}, {value:.1f}"
                        for head, value in row["sqnr_db"]["float"].items()
                    ),
                )
                for row in rows
            ),
        ),
    ]


if __name__ == "__main__":
    main()
