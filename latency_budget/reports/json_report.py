"""report.json: the source of every other report, with the raw samples in nanoseconds."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.atomic import write_text
from artifacts.errors import InputError
from artifacts.file_content import read_text
from latency_budget.report import SCHEMA, Report, Variant
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


def read_baseline(path: Path | str) -> Nanoseconds:
    """Returns [n] the frame latencies of the last variant of a report.json.

    Raises:
        InputError: the file is missing, is not such a report, or holds no samples.
    """
    path = Path(path)
    try:
        content = json.loads(read_text(path))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", "a report.json"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", "a report.json") from error
    try:
        columns = read_columns(content)
    except ValueError as error:
        raise InputError(f"{path}: {error}", "a report.json of framefit") from error
    dropped = np.asarray([value is None for value in columns["latency_ns"]])
    latency = np.asarray([value or 0 for value in columns["latency_ns"]], np.int64)
    return Run.from_latencies(latency, dropped=dropped).latency_ns


def read_columns(content: Any) -> dict[str, list[Any]]:
    """Returns the samples of a report's last variant as columns of recorded latencies.

    Raises:
        ValueError: it is not a report of this schema, or holds no samples.
    """
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError(f"not a report of schema {SCHEMA}")
    try:
        last = content["samples"][-1]
        frame = [None if value is None else int(value) for value in last["frame_ns"]]
        stages = {f"{name}_ns": list(values) for name, values in last["stages_ns"].items()}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ValueError("it holds no frame samples") from error
    if not frame:
        raise ValueError("it holds no frame samples")
    return {"latency_ns": frame, "dropped": [int(value is None) for value in frame], **stages}


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
