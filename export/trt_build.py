"""Runs the child process that builds a plan, and turns its answers into one-line errors."""

import json
import logging
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from artifacts.atomic import write_bytes
from artifacts.errors import InputError, UnavailableError
from artifacts.plan_manifest import FLAVOURS
from export.lint.target import TARGETS

_TITLES = {"tensorrt": "TensorRT", "tensorrt-rtx": "TensorRT-RTX"}
_UNSUPPORTED = ("UNSUPPORTED_NODE", "UNSUPPORTED_NODE_ATTR", "UNSUPPORTED_NODE_INPUT")

_OLD_GPU = re.compile(r"for target\(s\) sm(\d+).*HW-specific datatypes: (\w+)", re.DOTALL)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BuiltPlan:
    """What a build gave.

    Attributes:
        content: the serialized engine.
        version: the TensorRT that built it.
        compute_capabilities: the GPUs that it runs on.
    """

    content: bytes
    version: str
    compute_capabilities: tuple[int, ...]


def build_plan(
    onnx_path: Path,
    *,
    flavour: str,
    compute_capabilities: tuple[int, ...],
    timing_cache: Path | None,
    timeout_s: float,
    script: Path | None = None,
) -> BuiltPlan:
    """Builds a plan in a child process, so that a native crash is one line.

    Args:
        onnx_path: the strongly typed model.
        flavour: a key of `FLAVOURS` whose module is installed.
        compute_capabilities: as 86 for 8.6; classic TensorRT builds only for the GPU it runs on.
        timing_cache: file with the timings of earlier builds, read and replaced; None for none. One
            that cannot be used is ignored with a warning, and made anew.
        timeout_s: the longest that the build may take.
        script: the child to run; None for `trt_child.py`.

    Returns:
        the plan.

    Raises:
        InputError: TensorRT cannot parse or build the model, or not for these GPUs.
        UnavailableError: TensorRT does not work on this machine, crashed or took too long.
    """
    title = _TITLES[flavour]
    with TemporaryDirectory(prefix="framefit-trt-") as folder:
        plan, request, response, cache = (
            Path(folder, name)
            for name in ("model.plan", "request.json", "response.json", "timing.cache")
        )
        content = {
            "module": FLAVOURS[flavour],
            "onnx": str(onnx_path.resolve()),
            "plan": str(plan),
            "compute_capabilities": list(compute_capabilities),
            "timing_cache": None if timing_cache is None else str(timing_cache.resolve()),
            "new_timing_cache": str(cache),
        }
        request.write_text(json.dumps(content), encoding="utf-8")
        child = script or Path(__file__).with_name("trt_child.py")
        _run_child(child, request, response, title, onnx_path, timeout_s)
        answer = json.loads(response.read_text(encoding="utf-8"))
        if "error" in answer:
            raise _explain(answer["error"], flavour, onnx_path)
        if timing_cache is not None:
            if answer["is_cache_ignored"]:
                _log.warning(
                    f"the timing cache {timing_cache} is damaged, or of another {title} or GPU;"
                    " it was ignored and made anew"
                )
            write_bytes(timing_cache, cache.read_bytes())
        return BuiltPlan(
            content=plan.read_bytes(),
            version=answer["version"],
            compute_capabilities=tuple(answer["compute_capabilities"]),
        )


def _run_child(
    child: Path, request: Path, response: Path, title: str, onnx_path: Path, timeout_s: float
) -> None:
    command = [sys.executable, "-P", str(child), str(request), str(response)]
    try:
        result = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"{title} did not finish {onnx_path.name} in {timeout_s:.0f} s",
            fix="give it more time with --timeout",
        ) from error
    if result.returncode < 0:
        raise UnavailableError(
            f"{title} crashed on {onnx_path.name} (signal {-result.returncode})",
            fix="try another version of TensorRT, or report the kept network to NVIDIA",
        )
    if result.returncode or not response.exists():
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        reason = lines[-1].strip()[:240] if lines else f"exit status {result.returncode}"
        raise UnavailableError(f"{title} failed on {onnx_path.name}: {reason}")


def _explain(error: dict[str, Any], flavour: str, onnx_path: Path) -> InputError | UnavailableError:
    title = _TITLES[flavour]
    what = _telling_line(error["what"])
    if error["kind"] == "unavailable":
        return UnavailableError(
            f"{title} does not work on this machine: {what}",
            fix="build with --flavour tensorrt-rtx, or on a machine with an NVIDIA GPU",
        )
    if error["kind"] == "capability":
        known = ", ".join(str(value) for value in error["known"])
        return InputError(f"{title}: {what}", f"--sm among {known}")
    if error.get("code") in _UNSUPPORTED:
        what = f"it does not support this operator or what it is asked to do ({what})"
    lacking = _OLD_GPU.search(error["what"])
    if lacking is not None:
        target, kind = lacking.groups()
        return InputError(
            f"{title} cannot build {onnx_path.name} for compute capability {target}, which has no "
            f"{kind.partition('_')[0].upper()}",
            "compute capabilities that have it",
            "name newer ones with --sm: FP8 needs 89, FP4 needs 120",
        )
    place = ""
    if error.get("node") or error.get("operator"):
        place = f" at node '{error.get('node') or '(no name)'}' ({error.get('operator')})"
    verb = "parse" if error["kind"] == "parse" else "build"
    target = f" --target {flavour}" if flavour in TARGETS else ""
    return InputError(
        f"{title} cannot {verb} {onnx_path.name}{place}: {what}",
        "operators that TensorRT has",
        f"framefit export lint {onnx_path.name}{target} says what to change",
    )


def _telling_line(text: str) -> str:
    """Returns the line of TensorRT's message that names the cause, without source positions."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error Code" in line and "Cuda Runtime" not in line]
    line = (telling or lines or ["no reason given"])[0]
    return line.partition(" In ")[0].removesuffix(".")[:240]
