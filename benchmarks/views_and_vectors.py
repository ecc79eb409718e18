"""What two of OpenVINO's rules bring: one pair around views, and vectors in float; a table.

`python -m benchmarks.views_and_vectors`; with names of networks of timm only those.

Each network (random weights, judged on noise) is quantized with both rules, without the one that
leaves out the second Q/DQ pair around Transposes and Reshapes, and without the one by which small
layers that compute one vector read it in float. The files are timed in turn, beside float.
"""

import sys
from typing import Any
from unittest.mock import patch

from benchmarks.compared_forms import Case, compare_forms, make_timm_case, write_table
from benchmarks.machine import OtherProcesses
from compress.quantize.api import quantize_model
from compress.quantize.placement import tensorrt
from compress.quantize.placement.openvino import OpenVINO
from compress.quantize.placement.uniform_integers import UniformIntegers
from compress.quantize.settings import QuantizeSettings

TIMM = (
    "pvt_v2_b0",
    "levit_128",
    "repvit_m1",
    "mobilenetv3_large_100",
    "efficientnet_b0",
    "regnety_008",
)
SIZE = 224


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(make_timm_case(name, SIZE, SIZE)) for name in sys.argv[1:] or TIMM]
    title = "Float, both rules, a pair on either side of views, vectors in integers."
    write_table("views_and_vectors", title, rows, others.share)


def _measure(case: Case) -> dict[str, Any]:
    settings = QuantizeSettings(target="openvino")
    models = {"float": case.model}
    models["both rules"] = quantize_model(case.model, case.calibration, settings).model
    with patch.object(OpenVINO, "find_passed", UniformIntegers.find_passed):
        models["two pairs"] = quantize_model(case.model, case.calibration, settings).model
    with patch.object(tensorrt, "read_vectors_in_float", lambda graph, quantized: list(quantized)):
        models["vectors"] = quantize_model(case.model, case.calibration, settings).model
    return compare_forms(case, models)


if __name__ == "__main__":
    main()
