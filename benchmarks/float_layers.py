"""What layers that stay in float by rule cost and bring: last layers, small vectors; two tables.

`python -m benchmarks.float_layers FOLDER...`, folders of `CaseFiles`: those that
`benchmarks.peers` and `benchmarks.unseen` leave under out/, or your own. Each network is quantized
with both rules, with last layers in integers, and with small layers of one vector in integers; for
OpenVINO, where the files are timed in turn beside a copy of the first, and for TensorRT, where
TensorRT-RTX's kernels are counted.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import onnx

from benchmarks.compared_forms import Case, compare_forms, read_cases, write_table
from benchmarks.machine import OtherProcesses
from benchmarks.rtx_kernels import KernelBuilder, open_builder
from compress.head_judge import HeadJudge
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings

RULES: dict[str, dict[str, Any]] = {
    "both rules": {},
    "last layers": {"keeps_last_in_float": False},
    "vectors": {"vectors": "integers"},
}
"""Each form, and what it changes of the target's placement."""
FORMS = "both rules, last layers in integers, vectors in integers"


def main() -> None:
    """Measures, writes the raw figures and the sections of the page."""
    cases = list(read_cases(sys.argv[1:]))
    with open_builder() as build:
        counted = [_count_kernels(case, build) for case in cases]
    with OtherProcesses() as others:
        timed = [_time(case) for case in cases]
    title = f"OpenVINO: {FORMS}, a copy of the first."
    write_table("float_layers", title, timed, others.share)
    write_table(
        "float_layers_kernels",
        f"TensorRT: {FORMS}.",
        counted,
        others.share,
        measured=("kernels of TensorRT-RTX", _show_kernels),
    )


def _time(case: Case) -> dict[str, Any]:
    models = _write_forms(case, "openvino")
    return compare_forms(case, models | {"copy": models["both rules"]})


def _count_kernels(case: Case, build: KernelBuilder) -> dict[str, Any]:
    judge = HeadJudge.of_outputs(case.model, case.held_out)
    models = _write_forms(case, "tensorrt")
    built = {form: build(model) for form, model in models.items()}
    return {
        "network": case.name,
        "kernels": {
            form: len(one["layers"]) if one["is_built"] else None for form, one in built.items()
        },
        "sqnr_db": {form: judge.measure(model) for form, model in models.items()},
    }


def _write_forms(case: Case, target: str) -> dict[str, onnx.ModelProto]:
    settings, models = QuantizeSettings(target=target), {}
    for form, changes in RULES.items():
        with _placed_otherwise(changes):
            models[form] = quantize_model(case.model, case.calibration, settings).model
    return models


@contextmanager
def _placed_otherwise(changes: Mapping[str, Any]) -> Iterator[None]:
    """Changes what settings say of the target's placement."""
    found = QuantizeSettings.placement.fget
    assert found is not None
    changed = property(lambda settings: replace(found(settings), **changes))
    with patch.object(QuantizeSettings, "placement", changed):
        yield


def _show_kernels(row: Mapping[str, Any]) -> str:
    counts = row["kernels"].values()
    return ", ".join("not built" if count is None else str(count) for count in counts)


if __name__ == "__main__":
    main()
