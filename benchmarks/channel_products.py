"""What a product with a constant per channel behind SiLU and the like brings; a table of the page.

`python -m benchmarks.channel_products [FOLDER ...]`: the networks that
`python -m benchmarks.package_networks` has fetched, and others as `float.onnx`, `calib.npz`,
`held.npz` in a folder (`benchmarks.unseen` leaves some in out/unseen).

Each is quantized without products, with those before depthwise layers, and with all (the default),
for OpenVINO and for TensorRT. All are judged on held-out samples and timed on OpenVINO in turn,
since there is no GPU.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from artifacts.onnx_file import load_onnx
from benchmarks.compared_forms import Case, compare_forms, write_table
from benchmarks.machine import OtherProcesses
from benchmarks.package_networks import fetched_networks
from benchmarks.peers.cases import CaseFiles, read_feeds
from compress.quantize.api import quantize_model
from compress.quantize.repairs import channel_scales
from compress.quantize.settings import QuantizeSettings

TARGETS = ("openvino", "tensorrt")
NONE, DEPTHWISE, ALL = "no products", "before depthwise layers", "before all (the default)"
SWITCHED_OFF = {
    NONE: ("MOST_ERROR_LEFT", "MOST_LEFT_FUSED", "MOST_LEFT_APART"),
    DEPTHWISE: ("MOST_LEFT_FUSED", "MOST_LEFT_APART"),
    ALL: (),
}
"""The limits of `channel_scales` that no product keeps."""


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(case, target) for case in _cases() for target in TARGETS]
    title = f"{', '.join(SWITCHED_OFF).capitalize()}, in this order."
    write_table("channel_products", title, rows, others.share)


def _cases() -> Iterator[Case]:
    for network in fetched_networks():
        model = network.load()
        yield Case(network.name, model, *network.samples(model))
    for folder in map(Path, sys.argv[1:]):
        files = CaseFiles(folder)
        feeds = (read_feeds(path) for path in (files.calibration, files.held_out))
        yield Case(folder.resolve().name, load_onnx(files.model), *feeds)


def _measure(case: Case, target: str) -> dict[str, Any]:
    models = {}
    for name, limits in SWITCHED_OFF.items():
        with patch.multiple(channel_scales, **dict.fromkeys(limits, 0.0)):
            result = quantize_model(case.model, case.calibration, QuantizeSettings(target=target))
        models[name] = result.model
    row = compare_forms(case, models)
    print(row, flush=True)
    return row | {"network": f"{case.name}, for {target}"}


if __name__ == "__main__":
    main()
