"""What sums on a trunk without activations cost and bring in integers; a table of the page.

`python -m benchmarks.trunk_sums`, after `python -m benchmarks.package_networks`.

Each network is quantized for OpenVINO with the sums x + f(x) that no activation cuts in integers
and in float, and both files are timed in turn. CenterFace is trained and judged on held-out
pictures; those of timm have random weights, and are judged on noise.
"""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from benchmarks.compared_forms import Case, compare_forms, make_timm_case, write_table
from benchmarks.machine import OtherProcesses
from benchmarks.package_networks import fetched_networks
from compress.quantize.api import quantize_model
from compress.quantize.placement import layers
from compress.quantize.settings import QuantizeSettings

TIMM = ("convnext_tiny", "edgenext_xx_small", "mobilenetv2_100")
SIZE = 224


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(case) for case in _cases()]
    write_table("trunk_sums", "Sums in integers, in float.", rows, others.share)


def _cases() -> Iterator[Case]:
    for network in fetched_networks(["CenterFace"]):
        model = network.load()
        yield Case(network.name, model, *network.samples(model))
    for name in TIMM:
        yield make_timm_case(name, SIZE, SIZE)


def _measure(case: Case) -> dict[str, Any]:
    settings = QuantizeSettings(target="openvino", symmetric=True)
    with patch.object(layers, "_is_trunk", lambda *_: False):
        models = {"integers": quantize_model(case.model, case.calibration, settings).model}
    models["float"] = quantize_model(case.model, case.calibration, settings).model
    return compare_forms(case, models)


if __name__ == "__main__":
    main()
