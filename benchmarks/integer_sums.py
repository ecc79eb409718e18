"""What rounding both addends of sums saves on OpenVINO, and what it costs; a table of the page.

`python -m benchmarks.integer_sums`, after `python -m benchmarks.package_networks`; with names of
networks (of packages, or of timm below) only these are measured, and printed.

Each network is quantized for OpenVINO without and with the second rounding
(`compress.quantize.placement.integer_sums`), and with that of gated tensors (`integer_gates`). The
files are timed in turn. The demo's network and those of packages are trained and judged on held-out
pictures; those of timm have random weights, and are judged on noise.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from artifacts.onnx_file import load_onnx
from benchmarks.compared_forms import Case, compare_forms, make_timm_case, write_table
from benchmarks.machine import OtherProcesses, name_section
from benchmarks.package_networks import fetched_networks
from benchmarks.peers.cases import list_cases, read_feeds
from compress.quantize.api import quantize_model
from compress.quantize.placement.integer_sums import INTEGER_SUMS
from compress.quantize.settings import QuantizeSettings

TIMM = (
    "resnet18",
    "resnet50",
    "regnetx_008",
    "dla34",
    "hrnet_w18_small",
    "seresnet50",
    "regnety_008",
    "mobilenetv3_large_100",
    "efficientnet_b0",
)
PACKAGES = ("PP-OCRv4 text detection",)
HEIGHT, WIDTH = 320, 608


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    names = sys.argv[1:]
    with OtherProcesses() as others:
        rows = [_measure(case) for case in (_named(names) if names else _cases())]
    if names:
        print(json.dumps({"others": others.share, "networks": rows}, indent=1))
        return
    title = "In integers: no sums, residual sums, pyramids too, what gates multiply too."
    write_table(name_section("integer_sums"), title, rows, others.share)


def _cases() -> Iterator[Case]:
    demo = next(case for case in list_cases() if case.name == "demo")
    with demo.written() as files:
        yield Case(
            "demo",
            load_onnx(files.model),
            read_feeds(files.calibration),
            read_feeds(files.held_out),
        )
    yield from _named((*PACKAGES, *TIMM))


def _named(names: Sequence[str]) -> Iterator[Case]:
    for network in fetched_networks(names):
        model = network.load()
        yield Case(network.name, model, *network.samples(model))
    for name in TIMM:
        if name in names:
            yield make_timm_case(name, HEIGHT, WIDTH)


def _measure(case: Case) -> dict[str, Any]:
    models = {}
    for kind in INTEGER_SUMS:
        settings = QuantizeSettings(target="openvino", symmetric=True, integer_sums=kind)
        models[kind] = quantize_model(case.model, case.calibration, settings).model
    return compare_forms(case, models)


if __name__ == "__main__":
    main()
