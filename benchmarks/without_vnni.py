"""What processors without VNNI make of types of INT8 weights on OpenVINO; a table of the page.

`python -m benchmarks.without_vnni`

OpenVINO is kept from using VNNI and AMX (`ONEDNN_MAX_CPU_ISA`, read once by its first network), and
each network is quantized with each type of weights, for OpenVINO and, as without `--target`, for
TensorRT. What a file says is computed by onnxruntime, without optimizations.
"""

import os
from itertools import chain
from statistics import mean
from typing import Any

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx, save_onnx
from benchmarks.machine import OtherProcesses, describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.peers.cases import Case, list_cases, read_feeds
from benchmarks.peers.judge import measure_latency
from benchmarks.quantizer_choices import PAGE, RAW
from benchmarks.unseen.trained import OUT
from benchmarks.unseen.trained import list_cases as list_trained
from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from framefit.target_check import measure_on_target

NETWORKS = ("demo", "FastestDet", "UltraFace", "yolo_masks", "mask_queries")
"""The last two are trained first unless `benchmarks.unseen` has done so; the last has attention."""
FORMS = {
    f"{target} {weights}": QuantizeSettings(target=target, weights=weights)
    for target, types in {
        "openvino": ("int8", "int7", "int8-pairs"),
        "tensorrt": ("int8", "int8-pairs"),
    }.items()
    for weights in types
}
SECTION = "without_vnni"
ROUNDS = 100


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    with OtherProcesses() as others:
        cases = chain(list_cases(), list_trained(OUT / "weights"))
        rows = [_measure(case) for case in cases if case.name in NETWORKS]
    write_json(RAW.with_name(f"{SECTION}.json"), rows)
    lines = [
        "OpenVINO kept to AVX2; SQNR in dB, mean of the outputs, on pictures that did not "
        "calibrate: of the file, and of what is computed. "
        f"Measured in one run on {describe_machine()}; other processes took {others.share:.0%} of "
        "the processors' time.",
        "",
        *table_lines(
            (
                "network",
                "shortest inference, ms: float, and each",
                *FORMS,
            ),
            (_cells(row) for row in rows),
        ),
    ]
    write_text(PAGE, replace_section(PAGE.read_text(encoding="utf-8"), SECTION, lines))


def _measure(case: Case) -> dict[str, Any]:
    with case.written() as files:
        model, held_out = load_onnx(files.model), read_feeds(files.held_out)
        paths, row = {"float": files.model}, {"network": case.name}
        for form, settings in FORMS.items():
            quantized = quantize_model(model, read_feeds(files.calibration), settings).model
            paths[form] = save_onnx(quantized, files.folder / f"{form}.onnx", metadata={})
            said = compare_models(model, quantized, held_out)["outputs"]
            row[form] = {
                "said_db": {name: figures["sqnr_db"] for name, figures in said.items()},
                "computed_db": measure_on_target(model, quantized, held_out, "openvino"),
            }
        return row | {"times": measure_latency(paths, ROUNDS)}


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    times = ", ".join(f"{item['min_ms']:.2f}" for item in row["times"].values())
    quality = (
        "; ".join(
            f"{mean(row[form][kind][name] for name in row[form]['said_db']):.1f}"
            for kind in ("said_db", "computed_db")
        )
        for form in FORMS
    )
    return (row["network"], times, *quality)


if __name__ == "__main__":
    main()
