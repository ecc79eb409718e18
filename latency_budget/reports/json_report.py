"""report.json: the source of every other report, with the raw samples in nanoseconds."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.atomic import write_text
from latency_budget.report import Report, Variant
from latency_budget.run import Nanoseconds, Run

FILE_NAME = "report.json"


def write(report: Report, folder: Path) -> Path:
    """Writes report.json; the samples stand on one line each, so the rest stays readable."""
    text = render(report)
    path = folder / FILE_NAME
    write_text(path, text)
    return path


def render(report: Report) -> str:
    """Returns the report as JSON text; NaN and infinity become null, which JSON has."""
    body = json.dumps(_finite(report.to_dict()), indent=1, allow_nan=False)
    samples = ",\n".join(
        f"  {json.dumps(_samples_of(variant), separators=(',', ':'))}"
        for variant in report.variants
    )
    return f'{body.removesuffix("}").rstrip()},\n "samples": [\n{samples}\n ]\n}}\n'


def _samples_of(variant: Variant) -> dict[str, Any]:
    run = variant.run
    return {
        "name": variant.name,
        "frame_ns": _with_nulls(run, run.done_ns - run.arrival_ns),
        "stages_ns": {
            name: _with_nulls(run, run.marks_ns[:, i + 1] - run.marks_ns[:, i])
            for i, name in enumerate(run.stage_names)
        },
        "warmup_ns": run.warmup_ns.tolist(),
    }


def _with_nulls(run: Run, values: Nanoseconds) -> list[int | None]:
    return [
        None if dropped else value
        for value, dropped in zip(values.tolist(), run.dropped.tolist(), strict=True)
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, np.generic):
        return _finite(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
