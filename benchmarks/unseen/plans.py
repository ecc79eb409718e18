"""Whether lint and TensorRT-RTX agree on a file, which is built into a plan without a GPU."""

from pathlib import Path
from typing import Any

from artifacts.errors import FramefitError
from benchmarks.zoo.child import CAPABILITY

LIMIT_S = 300.0


def build_plan(path: Path) -> dict[str, Any]:
    """Lints a quantized file for TensorRT-RTX and builds its plan.

    Returns:
        {"is_buildable": what lint says, "errors": of lint, "plan_bytes"}, or {"failure"} in place
        of the last.
    """
    from export.lint import lint_file
    from export.to_trt import PlanSettings, build_plans

    report = lint_file(path, target="tensorrt-rtx")
    errors = [item.what for item in report.findings if item.severity == "error"]
    row: dict[str, Any] = {"is_buildable": report.is_buildable, "errors": errors}
    settings = PlanSettings(int8=True, sm=(CAPABILITY,), flavour="tensorrt-rtx", timeout_s=LIMIT_S)
    try:
        (plan,) = build_plans(path, settings=settings)
    except FramefitError as error:
        return row | {"failure": str(error)[:200]}
    return row | {"plan_bytes": plan.manifest.plan_bytes}
