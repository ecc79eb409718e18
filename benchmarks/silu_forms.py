"""What SiLU written with tanh costs or saves on OpenVINO; a table of the page.

`python -m benchmarks.silu_forms [NAME...]`, after `python -m benchmarks.package_networks`.

Each network is quantized for OpenVINO on this processor, its SiLUs behind spatial layers as they
are and as h tanh(h) + h (`compress.quantize.placement.openvino_forms`), and both files are timed in
turn with float. The networks of timm have random weights; latency does not depend on them.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import timm
import torch
from torch import nn

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import save_onnx
from artifacts.onnx_inputs import input_tensors
from benchmarks.chosen_names import add_names, parse_names
from benchmarks.kernel_forms import chain_layers, export_module
from benchmarks.machine import OtherProcesses, describe_machine, name_section
from benchmarks.marked import replace_section, table_lines
from benchmarks.package_networks import fetched_networks
from benchmarks.peers.judge import measure_latency
from benchmarks.quantizer_choices import PAGE, RAW
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from framefit.quantize_choices import choose_weights

SECTION = name_section("silu_forms")
ROUNDS = 60
CHANNELS = (16, 64, 128)
TIMM = (
    "cs3darknet_s",
    "efficientnetv2_rw_t",
    "mobilevit_xxs",
    "regnetz_b16",
    "resnext26ts",
)
PACKAGED = ("NudeNet (YOLOv8n)", "YOLOX")


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.silu_forms", description=__doc__)
    known = [*_chains(), *TIMM, *PACKAGED]
    add_names(parser, known, "the others leave the table")
    names = parse_names(parser, known).names
    with OtherProcesses() as others:
        rows = [_measure(name, model) for name, model in _networks(names or known)]
    write_json(RAW.with_name(f"{SECTION}.json"), rows)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, SECTION, _render(rows, others.share)))


def _chains() -> dict[str, int]:
    return {f"chain of layers, {channels} channels": channels for channels in CHANNELS}


def _networks(names: list[str]) -> Iterator[tuple[str, onnx.ModelProto]]:
    torch.manual_seed(0)
    for name, channels in _chains().items():
        if name in names:
            yield name, export_module(chain_layers([nn.SiLU()] * 6, channels))
    for name in TIMM:
        if name in names:
            module = timm.create_model(name, pretrained=False)
            yield f"{name}, random weights", export_module(module, 224, 224)
    for network in fetched_networks([name for name in PACKAGED if name in names]):
        yield network.name, network.load()


def _measure(name: str, model: onnx.ModelProto) -> dict[str, Any]:
    print(name, flush=True)
    rng = np.random.default_rng(0)
    ((tensor, info),) = input_tensors(model).items()
    samples = [{tensor: rng.random(info.shape, np.float32)} for _ in range(2)]
    plain = QuantizeSettings(
        target="openvino",
        weights=choose_weights("openvino"),
        symmetric=False,
        swish_by_tanh=False,
        equalization=False,
        input_correction=False,
    )
    settings = {"SiLU": plain, "tanh": replace(plain, swish_by_tanh=True)}
    with TemporaryDirectory() as folder:
        files = {"float": save_onnx(model, Path(folder, "float.onnx"), metadata={})}
        for kind, item in settings.items():
            quantized = quantize_model(model, samples, item).model
            files[kind] = save_onnx(quantized, Path(folder, f"{kind}.onnx"), metadata={})
        count = sum(node.op_type == "Tanh" for node in quantized.graph.node)
        times = measure_latency(files, ROUNDS)
    return {"network": name, "count": count, "times": times}


def _render(rows: list[dict[str, Any]], others: float) -> list[str]:
    return [
        "Shortest inference in ms: float, INT8 with its SiLUs as they are, with tanh. Measured in "
        f"one run on {describe_machine()}; other processes took {others:.0%} of the processors' "
        "time.",
        "",
        *table_lines(
            ("network", "SiLUs behind spatial layers", "float", "INT8, SiLU", "INT8, tanh"),
            ((row["network"], str(row["count"]), *_show(row["times"])) for row in rows),
        ),
    ]


def _show(times: dict[str, Any]) -> tuple[str, str, str]:
    plain, silu, tanh = (times[kind]["min_ms"] for kind in ("float", "SiLU", "tanh"))
    return f"{plain:.2f}", f"{silu:.2f}", f"{tanh:.2f} ({tanh / silu - 1:+.0%})"


if __name__ == "__main__":
    main()
