"""What centered ranges bring a network for TensorRT; the table of docs/experiments.md.

`python -m benchmarks.centered_ranges [FOLDER...]`: the networks of `benchmarks.peers`, and those of
your own as `float.onnx`, `calib.npz`, `held.npz` in a folder (`benchmarks.fresh_networks` writes
some). Each is quantized for TensorRT with and without. SQNR is that of each output on held-out
samples, as OpenVINO computes it; both files and float are timed there in turn, since there is no
GPU: what TensorRT-RTX makes of both is compared in tests/export/lint/test_fusions.py.
"""

import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx, save_onnx
from benchmarks.machine import OtherProcesses, describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.peers.cases import Case, list_cases, own_case, read_feeds
from benchmarks.peers.judge import measure_latency
from benchmarks.quantizer_choices import PAGE, RAW
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from framefit.target_check import measure_on_target


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    cases = [*list_cases(), *map(own_case, map(Path, sys.argv[1:]))]
    with OtherProcesses() as others:
        rows = [_measure(case) for case in cases]
    figures = {"rows": rows, "machine": describe_machine(), "others": others.share}
    write_json(RAW.with_name("centered_ranges.json"), figures)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, "centered", _render(figures)))


def _measure(case: Case) -> dict[str, Any]:
    with case.written() as files:
        model = load_onnx(files.model)
        calibration, held_out = read_feeds(files.calibration), read_feeds(files.held_out)
        paths = {"float": files.model}
        sqnr_db = {}
        moved = 0
        for name in ("without", "with"):
            settings = QuantizeSettings(centering=name == "with")
            result = quantize_model(model, calibration, settings)
            sqnr_db[name] = measure_on_target(model, result.model, held_out, "openvino")
            paths[name] = save_onnx(result.model, files.folder / f"{name}.onnx", metadata={})
            lines = [line for line in result.simplified if line.startswith("centered")]
            moved = sum(line.count(",") + 1 for line in lines)
        times = measure_latency(paths, case.rounds)
    p50_ms = {name: median(found["p50_ms"]) for name, found in times.items()}
    row = {"network": case.name, "moved": moved, "sqnr_db": sqnr_db, "p50_ms": p50_ms}
    print(row, flush=True)
    return row


def _render(figures: dict[str, Any]) -> list[str]:
    rows = []
    for row in figures["rows"]:
        cells = [row["network"], str(row["moved"])]
        for name in ("without", "with"):
            found = row["sqnr_db"][name]
            each = "; ".join(f"{output} {db:.1f}" for output, db in found.items())
            cells.append(f"{mean(found.values()):.1f} ({each})")
        cells += [f"{row['p50_ms'][name]:.2f}" for name in ("float", "without", "with")]
        rows.append(cells)
    head = ("network", "tensors moved", "SQNR without, dB", "with", "float, ms", "without", "with")
    return [
        "SQNR: the mean over outputs, and each; P50 on OpenVINO. Measured in one run on "
        f"{figures['machine']}; other processes took {100 * figures['others']:.0f} % of the "
        "processors' time.",
        "",
        *table_lines(head, rows),
    ]


if __name__ == "__main__":
    main()
