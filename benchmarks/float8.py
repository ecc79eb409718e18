"""What FP8 (E4M3) costs where INT8 could be, for the table of docs/experiments.md.

`python -m benchmarks.float8 [FOLDER...]`: the networks of `benchmarks.peers`, and those of your own
as `float.onnx`, `calib.npz`, `held.npz` in a folder. Each is quantized for TensorRT to INT8 without
any repair, and the same Q/DQ pairs are written as FP8: each scale such that 448, the largest number
of E4M3, stands for what 127 stood for. SQNR is that of the outputs on held-out samples, as the
files say (onnxruntime).
"""

import sys
from pathlib import Path
from statistics import mean
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx
from benchmarks.marked import replace_section, table_lines
from benchmarks.peers.cases import Case, list_cases, own_case, read_feeds
from benchmarks.quantizer_choices import PAGE, RAW
from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings

PLAIN = QuantizeSettings(
    bias_correction=False, input_correction=False, equalization=False, centering=False
)
RATIO = 127 / 448
FLOAT8_OPSET, FLOAT8_IR = 19, 9


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    cases = [*list_cases(), *map(own_case, map(Path, sys.argv[1:]))]
    rows = [_measure(case) for case in cases]
    write_json(RAW.with_name("float8.json"), {"rows": rows})
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, "float8", _render(rows)))


def to_float8(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a network whose INT8 Q/DQ pairs, without zero points, are of FP8 instead."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    tensors = {item.name: item for item in other.graph.initializer}
    kinds = ("QuantizeLinear", "DequantizeLinear")
    pairs = [node for node in other.graph.node if node.op_type in kinds and len(node.input) == 3]
    in_int8 = [node.input for node in pairs if tensors[node.input[2]].data_type == TensorProto.INT8]
    for name in {scale for _, scale, _ in in_int8}:
        scale = numpy_helper.to_array(tensors[name]) * np.float32(RATIO)
        tensors[name].CopyFrom(numpy_helper.from_array(np.asarray(scale, np.float32), name))
    for name in {name for inputs in in_int8 for name in (inputs[0], inputs[2]) if name in tensors}:
        values = numpy_helper.to_array(tensors[name]) / np.float32(RATIO)
        codes = values.astype(ml_dtypes.float8_e4m3fn)
        tensors[name].CopyFrom(numpy_helper.from_array(codes, name))
    for item in other.opset_import:
        item.version = max(item.version, FLOAT8_OPSET if not item.domain else 1)
    other.ir_version = max(other.ir_version, FLOAT8_IR)
    return other


def _measure(case: Case) -> dict[str, Any]:
    with case.written() as files:
        model = load_onnx(files.model)
        calibration, held_out = read_feeds(files.calibration), read_feeds(files.held_out)
        plain = quantize_model(model, calibration, PLAIN).model
        repaired = quantize_model(model, calibration, QuantizeSettings()).model
        networks = {"float8": to_float8(plain), "plain": plain, "repaired": repaired}
        sqnr_db = {
            name: {
                output: found["sqnr_db"]
                for output, found in compare_models(model, network, held_out)["outputs"].items()
            }
            for name, network in networks.items()
        }
    row = {"network": case.name, "sqnr_db": sqnr_db}
    print(row, flush=True)
    return row


def _render(rows: list[dict[str, Any]]) -> list[str]:
    cells = [
        (row["network"], *(_say(row["sqnr_db"][name]) for name in ("float8", "plain", "repaired")))
        for row in rows
    ]
    return [
        "SQNR in dB, pooled over held-out samples: the mean over outputs, and each.",
        "",
        *table_lines(("network", "FP8", "INT8, no repairs", "INT8"), cells),
    ]


def _say(found: dict[str, float]) -> str:
    each = "; ".join(f"{output} {db:.1f}" for output, db in found.items())
    return f"{mean(found.values()):.1f} ({each})"


if __name__ == "__main__":
    main()
