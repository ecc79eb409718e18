"""Brings old ONNX models (opset 9, 11 …) to an opset that every runtime and pass here knows."""

import json
import logging
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

from artifacts.errors import InputError, first_line
from artifacts.graph_checks import model_opset
from artifacts.shape_inference import infer_shapes

TARGET_OPSET = 17
OLDEST_KEPT_OPSET = 13
MIN_IR_VERSION = 8
MAX_RELATIVE_DIFFERENCE = 1e-4
TIMEOUT_S = 300.0

_log = logging.getLogger(__name__)


def upgrade_opset(
    model: onnx.ModelProto, path: Path, *, target_opset: int = TARGET_OPSET
) -> onnx.ModelProto:
    """Converts a model below `target_opset` to it and proves that it still computes the same.

    The conversion runs in a child process. Its outputs are compared with the original's on random
    input, where onnxruntime still runs the original, within 1e-4 of each output's largest value.

    Args:
        model: a checked model.
        path: its file, for the errors.
        target_opset: the opset that is enough.

    Returns:
        the model itself if it is new enough, else the converted one; a model from opset 13 on that
        cannot be converted is returned as it is.

    Raises:
        InputError: the model is older than opset 13 and cannot be converted faithfully.
    """
    opset = model_opset(model)
    if opset >= target_opset:
        return model
    report, converted = _convert_in_child(model, target_opset)
    problem = _find_problem(report)
    if not problem and converted is not None:
        needed = onnx.helper.find_min_ir_version_for(converted.opset_import, ignore_unknown=True)
        converted.ir_version = max(converted.ir_version, needed)
        del converted.metadata_props[:]
        converted.metadata_props.extend(model.metadata_props)
        return converted
    if opset >= OLDEST_KEPT_OPSET and report.get("is_source_runnable"):
        _log.warning("%s stays at opset %d: %s", path, opset, problem)
        return model
    raise InputError(
        f"cannot convert {path} from opset {opset} to {target_opset}: {problem}",
        fix=f"export it again with opset {target_opset}",
    )


def require_opset(model: onnx.ModelProto, opset: int, purpose: str) -> onnx.ModelProto:
    """Returns the model in `opset` or newer, with inferred shapes; it is not changed itself.

    Raises:
        InputError: it cannot be converted faithfully; the message says what for.
    """
    if model_opset(model) >= opset:
        return model
    converted = upgrade_opset(model, Path("the network"), target_opset=opset)
    if model_opset(converted) < opset:
        raise InputError(
            f"the network has opset {model_opset(model)} and cannot be converted",
            f"opset {opset} for {purpose}",
            f"export it again with opset {opset}",
        )
    return infer_shapes(converted)


def require_runnable(model: onnx.ModelProto, path: Path) -> None:
    """Runs a model once on random input, in a child process.

    Raises:
        InputError: onnxruntime cannot run it with the shapes that its inputs have.
    """
    report, _ = _convert_in_child(model, model_opset(model))
    if not report.get("is_source_runnable"):
        reason = report.get("source_error") or report.get("error") or "no reason given"
        raise InputError(
            f"{path} cannot compute with this --input-shape: {first_line(ValueError(reason))}",
            "sizes that all its layers fit",
        )


def _convert_in_child(
    model: onnx.ModelProto, opset: int
) -> tuple[dict[str, Any], onnx.ModelProto | None]:
    with tempfile.TemporaryDirectory(prefix="framefit-opset-") as folder:
        source, target = Path(folder, "source.onnx"), Path(folder, "target.onnx")
        source.write_bytes(model.SerializeToString())
        report = _run_child(source, target, opset)
        is_written = report.get("error") is None and target.exists()
        converted = onnx.load(target, load_external_data=False) if is_written else None
    return report, converted


def _run_child(source: Path, target: Path, opset: int) -> dict[str, Any]:
    script = Path(__file__).with_name("opset_child.py")
    command = [sys.executable, "-P", str(script), str(source), str(target), str(opset)]
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"the converter did not finish in {TIMEOUT_S:.0f} s"}
    if child.returncode < 0:
        return {"error": f"the converter crashed (signal {-child.returncode})"}
    try:
        return dict(json.loads(child.stdout))
    except ValueError:
        return {"error": f"the converter failed: {child.stderr.strip()[-200:]}"}


def _find_problem(report: dict[str, Any]) -> str:
    if report.get("error"):
        return first_line(ValueError(report["error"]))
    difference = report.get("max_difference")
    if difference is not None and difference > MAX_RELATIVE_DIFFERENCE:
        return f"the converted outputs differ by {difference:.2g} of their range"
    return ""
