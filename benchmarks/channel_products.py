"""What a product with a constant per channel behind SiLU and the like brings; a table of the page.

`python -m benchmarks.channel_products [NETWORK ...] [FOLDER ...]`: of the networks that
`python -m benchmarks.package_networks` has fetched those named, or all, and others as `float.onnx`,
`calib.npz`, `held.npz` in a folder (`benchmarks.unseen` leaves some in out/unseen).

Each is quantized without products, with those before depthwise layers, with those behind single
tensors, and with those behind what a Concat, Split or Add joins too (the default), for OpenVINO
and for TensorRT. All are judged on held-out samples, and timed on OpenVINO in turn, since there is
no GPU.
"""

import sys
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from benchmarks.compared_forms import Case, compare_forms, read_cases, write_table
from benchmarks.machine import OtherProcesses
from compress.quantize import prepare
from compress.quantize.api import quantize_model
from compress.quantize.repairs import channel_scales
from compress.quantize.repairs.joined_scales import scale_joined
from compress.quantize.settings import QuantizeSettings

TARGETS = ("openvino", "tensorrt")
_DENSE = {"MOST_LEFT_FUSED": 0.0, "MOST_LEFT_APART": 0.0}
VARIANTS: dict[str, tuple[dict[str, float], bool]] = {
    "no products": ({"MOST_ERROR_LEFT": 0.0} | _DENSE, False),
    "before depthwise layers": (_DENSE, False),
    "behind single tensors": ({}, False),
    "behind joined ones too (the default)": ({}, True),
}
"""The limits of `channel_scales` that are changed, and whether joined tensors are scaled."""


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(case, target) for case in read_cases(sys.argv[1:]) for target in TARGETS]
    title = f"{', '.join(VARIANTS).capitalize()}, in this order."
    write_table("channel_products", title, rows, others.share)


def _measure(case: Case, target: str) -> dict[str, Any]:
    models = {}
    for name, (limits, scales_joined) in VARIANTS.items():
        with ExitStack() as stack:
            if limits:
                stack.enter_context(patch.multiple(channel_scales, **limits))
            if not scales_joined:
                others = tuple(one for one in prepare.PRODUCTS if one is not scale_joined)
                stack.enter_context(patch.object(prepare, "PRODUCTS", others))
            settings = QuantizeSettings(target=target)
            models[name] = quantize_model(case.model, case.calibration, settings).model
    row = compare_forms(case, models)
    print(row, flush=True)
    return row | {"network": f"{case.name}, for {target}"}


if __name__ == "__main__":
    main()
