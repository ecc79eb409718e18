"""One network in several forms side by side: latency, SQNR, and a table of the page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import timm
import torch

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx, save_onnx
from artifacts.onnx_inputs import input_tensors
from benchmarks.kernel_forms import enlarge_branches, export_module
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.package_networks import fetched_networks
from benchmarks.peers.cases import CaseFiles, read_feeds
from benchmarks.peers.judge import measure_latency
from benchmarks.quantizer_choices import PAGE, RAW
from compress.head_judge import HeadJudge

SAMPLES = 8
ROUNDS = 100


@dataclass(frozen=True)
class Case:
    """A network with calibration samples and others."""

    name: str
    model: onnx.ModelProto
    calibration: list[dict[str, np.ndarray]]
    held_out: list[dict[str, np.ndarray]]


def make_timm_case(name: str, height: int, width: int) -> Case:
    """Returns a network of timm with random weights, judged on noise."""
    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False)
    enlarge_branches(module)
    model = export_module(module, height, width)
    ((tensor, info),) = input_tensors(model).items()
    rng = np.random.default_rng(0)
    noise = [
        {tensor: rng.standard_normal(info.shape).astype(np.float32)} for _ in range(2 * SAMPLES)
    ]
    return Case(f"{name}, random weights", model, noise[:SAMPLES], noise[SAMPLES:])


def read_cases(arguments: Sequence[str]) -> Iterator[Case]:
    """Yields the networks and folders that are named; all that were fetched without any."""
    folders = [item for item in map(Path, arguments) if item.is_dir()]
    names = [item for item in arguments if not Path(item).is_dir()]
    for network in fetched_networks(names) if names or not folders else ():
        model = network.load()
        yield Case(network.name, model, *network.samples(model))
    for folder in folders:
        files = CaseFiles(folder)
        feeds = (read_feeds(path) for path in (files.calibration, files.held_out))
        yield Case(folder.resolve().name, load_onnx(files.model), *feeds)


def compare_forms(case: Case, models: Mapping[str, onnx.ModelProto]) -> dict[str, Any]:
    """Times a network's files in turn and judges them against the float network.

    Args:
        case: the network.
        models: by the name of the form.
    """
    judge = HeadJudge.of_outputs(case.model, case.held_out)
    with TemporaryDirectory() as folder:
        files = {
            form: save_onnx(model, Path(folder, f"{form}.onnx"), metadata={})
            for form, model in models.items()
        }
        times = measure_latency(files, ROUNDS)
    quality = {form: judge.measure(model) for form, model in models.items()}
    return {"network": case.name, "times": times, "sqnr_db": quality}


def _show_times(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{item['min_ms']:.2f}" for item in row["times"].values())


def write_table(
    section: str,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    others: float,
    *,
    measured: tuple[str, Callable[[Mapping[str, Any]], str]] = (
        "shortest inference, ms",
        _show_times,
    ),
) -> None:
    """Writes the raw figures and the section of the page.

    Args:
        section: its name, and that of the raw figures.
        title: says which forms there are, in their order.
        rows: of `compare_forms`, or with other figures than times.
        others: share of the processors' time that other processes took.
        measured: heading and text of the figures that stand beside the quality.
    """
    write_json(RAW.with_name(f"{section}.json"), rows)
    heading, show = measured
    lines = [
        f"{title} Measured in one run on {describe_machine()}; other processes took "
        f"{others:.0%} of the processors' time.",
        "",
        *table_lines(
            ("network", heading, "SQNR of each output, dB"),
            ((row["network"], show(row), _show_quality(row)) for row in rows),
        ),
    ]
    write_text(PAGE, replace_section(PAGE.read_text(encoding="utf-8"), section, lines))


def _show_quality(row: Mapping[str, Any]) -> str:
    by_head = zip(*(heads.values() for heads in row["sqnr_db"].values()), strict=True)
    return "; ".join(", ".join(f"{value:.1f}" for value in values) for values in by_head)
