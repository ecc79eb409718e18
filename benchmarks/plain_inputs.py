"""What ConvTransposes without zero points save on OpenVINO, and attention in integers; a table.

`python -m benchmarks.plain_inputs [NETWORK ...] [FOLDER ...]`: networks that
`python -m benchmarks.package_networks` has fetched, or of timm (with random weights, judged on
noise), and others as `float.onnx`, `calib.npz`, `held.npz` in a folder (`benchmarks.unseen` leaves
some in out/unseen).

Each is quantized with zero points wherever they use the grid better, without them where a
ConvTranspose reads (the default), and with attention in integers too. The files are timed in turn
and judged on held-out samples.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from benchmarks.compared_forms import Case, compare_forms, make_timm_case, read_cases, write_table
from benchmarks.machine import OtherProcesses
from compress.quantize.api import quantize_model
from compress.quantize.placement.openvino import OpenVINO
from compress.quantize.settings import QuantizeSettings

TIMM = ("vit_tiny_patch16_224", "mobilevit_s", "swin_tiny_patch4_window7_224")
SIDE = 224
TITLE = (
    "Zero points everywhere, none before ConvTransposes (the default), and attention in integers "
    "too, in this order."
)


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(case) for case in _list_cases(sys.argv[1:])]
    write_table("plain_inputs", TITLE, rows, others.share)


def _list_cases(arguments: Sequence[str]) -> Iterator[Case]:
    rest = [item for item in arguments if item not in TIMM]
    if rest:
        yield from read_cases(rest)
    for name in TIMM:
        if name in arguments or not arguments:
            yield make_timm_case(name, SIDE, SIDE)


def _measure(case: Case) -> dict[str, Any]:
    def quantize(*, integer_attention: bool) -> Any:
        settings = QuantizeSettings(target="openvino", integer_attention=integer_attention)
        return quantize_model(case.model, case.calibration, settings).model

    with patch.object(OpenVINO, "find_plain_inputs", lambda *_: ()):
        everywhere = quantize(integer_attention=False)
    models = {
        "zero points everywhere": everywhere,
        "none before ConvTransposes": quantize(integer_attention=False),
        "attention in integers": quantize(integer_attention=True),
    }
    return compare_forms(case, models)


if __name__ == "__main__":
    main()
