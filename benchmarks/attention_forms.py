"""What zero points cost OpenVINO where it may compute attention in integers; a table of the page.

`python -m benchmarks.attention_forms [NAME or FOLDER...]`.

Each network is quantized for OpenVINO with its attention in float and in integers, both with zero
points and without. The files are timed in turn. Networks of timm have random weights and are judged
on noise; a folder is one that `benchmarks.unseen` wrote.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.compared_forms import Case, compare_forms, make_timm_case, read_cases, write_table
from benchmarks.machine import OtherProcesses, name_section
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings

TIMM = ("vit_tiny_patch16_224", "mobilevit_xxs", "edgenext_xx_small", "efficientformerv2_s0")
SIZE = 224


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(case) for case in _list_cases(sys.argv[1:])]
    title = "With zero points: attention in float, in integers; without: in float, in integers."
    write_table(name_section("attention_forms"), title, rows, others.share)


def _list_cases(arguments: list[str]) -> Iterator[Case]:
    for name in TIMM:
        if name in arguments or not arguments:
            yield make_timm_case(name, SIZE, SIZE)
    others = [item for item in arguments if item not in TIMM]
    if others:
        yield from read_cases(others)


def _measure(case: Case) -> dict[str, Any]:
    print(case.name, flush=True)
    plain = QuantizeSettings(target="openvino", swish_by_tanh=False, integer_sums="none")
    models = {}
    for symmetric in (False, True):
        for in_integers in (False, True):
            settings = replace(plain, symmetric=symmetric, integer_attention=in_integers)
            name = f"symmetric {symmetric}, attention {in_integers}"
            models[name] = quantize_model(case.model, case.calibration, settings).model
    return compare_forms(case, models)


if __name__ == "__main__":
    main()
