"""Child process that converts an ONNX model to a newer opset and compares the results.

The converter and the runtime are native code that a hostile file may crash, so they run here, and
a crash is told by this process's exit status. It imports nothing of framefit, so that it starts
quickly. Usage: `opset_child.py SOURCE TARGET OPSET`; prints one JSON object:
`{"error": str | null, "is_source_runnable": bool, "max_difference": float | null}`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import version_converter

RESIZE_SEMANTICS_OPSET = 11


def convert(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Returns the model in a newer opset, with the meaning of the old Resize and Upsample.

    Below opset 11 both sample at x_source = x_target / scale and round down; the converter leaves
    opset 11's default (half pixel) in its place, which moves every feature.
    """
    source_opset = next(item.version for item in model.opset_import if not item.domain)
    converted = version_converter.convert_version(model, opset)
    if source_opset < RESIZE_SEMANTICS_OPSET:
        for node in converted.graph.node:
            if node.op_type == "Resize":
                _set_attribute(node, "coordinate_transformation_mode", "asymmetric")
                _set_attribute(node, "nearest_mode", "floor")
    return converted


def _set_attribute(node: onnx.NodeProto, name: str, value: str) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])


def open_session(model_bytes: bytes) -> onnxruntime.InferenceSession:
    """Opens a model on the CPU, quietly and without optimisations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"])


def random_feeds(session: onnxruntime.InferenceSession) -> dict[str, NDArray[Any]]:
    """Returns random inputs for a session (dynamic dimensions become 1)."""
    generator = np.random.default_rng(0)
    feeds = {}
    for item in session.get_inputs():
        shape = [size if isinstance(size, int) and size > 0 else 1 for size in item.shape]
        values = generator.uniform(0, 1, shape)
        feeds[item.name] = values.astype(_DTYPES.get(item.type, np.float32))
    return feeds


_DTYPES: dict[str, Any] = {
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}


def max_difference(expected: list[NDArray[Any]], actual: list[NDArray[Any]]) -> float:
    """Returns the largest difference, relative to each output's largest value."""
    worst = 0.0
    for left, right in zip(expected, actual, strict=True):
        if left.shape != right.shape:
            return float("inf")
        a, b = left.astype(np.float64), right.astype(np.float64)
        is_same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            difference = np.where(is_same, 0.0, np.abs(a - b))
        finite = np.abs(a[np.isfinite(a)])
        scale = max(float(finite.max(initial=0.0)), 1e-6)
        worst = max(worst, float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0)) / scale)
    return worst


def run(source: Path, target: Path, opset: int) -> dict[str, Any]:
    """Converts SOURCE to TARGET and reports how far their outputs are apart."""
    model = onnx.load(source, load_external_data=False)
    report: dict[str, Any] = {"error": None, "is_source_runnable": False, "max_difference": None}
    try:
        original = open_session(source.read_bytes())
        feeds = random_feeds(original)
        expected = original.run(None, feeds)
        report["is_source_runnable"] = True
    except Exception as error:
        report["source_error"] = str(error)
    try:
        converted = convert(model, opset)
        onnx.checker.check_model(converted, full_check=True)
        onnx.save(converted, target)
        if report["is_source_runnable"]:
            actual = open_session(target.read_bytes()).run(None, feeds)
            report["max_difference"] = min(max_difference(expected, actual), 1e30)
    except Exception as error:
        report["error"] = str(error)
    return report


if __name__ == "__main__":
    result = run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(json.dumps(result))
