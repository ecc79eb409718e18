"""Reads a report.json again, so that every other format can be made from it elsewhere and later."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.errors import InputError
from artifacts.file_content import read_text
from artifacts.strict_json import read_json
from latency_budget.gate import ONLY_REPORTED, Gate, Verdict
from latency_budget.report import SCHEMA, Report, Variant
from latency_budget.run import Run

_WHAT = "a report.json of framefit"
_YEAR_10000_S = 253_402_300_800


def read_content(path: Path | str) -> dict[str, Any]:
    """Returns the JSON of a report of this schema.

    Raises:
        InputError: the file cannot be read or is something else.
    """
    path = Path(path)
    try:
        content = read_json(read_text(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", _WHAT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", _WHAT) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a report of schema {SCHEMA}", _WHAT)
    return content


def read_report(path: Path | str) -> Report:
    """Returns the report that a report.json was written from.

    The times of the samples come back as they were; what the reports do not show (arrivals,
    counters) does not.

    Raises:
        InputError: the file cannot be read, is something else, or lacks a part.
    """
    content = read_content(path)
    try:
        samples = content["samples"]
        if not samples:
            raise ValueError("no variant")
        variants = tuple(
            _variant(values, part, content["frame"]["rate_hz"])
            for values, part in zip(content["variants"], samples, strict=True)
        )
        return Report(
            variants=variants,
            verdict=Verdict(content["verdict"]),
            gates=_gates(content["gates"]),
            environment=dict(content["environment"]),
            frame={str(key): _number(value) for key, value in content["frame"].items()},
            title=str(content.get("title", "")),
            notes=tuple(str(note) for note in content.get("notes", [])),
            created_s=_moment(content["created_s"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path} is not a whole report: {error!r}", _WHAT) from error


def _variant(values: dict[str, Any], samples: dict[str, Any], rate_hz: float) -> Variant:
    verdict = values.get("verdict")
    return Variant(
        name=str(values["name"]),
        artifact=str(values["artifact"]),
        sha256=str(values["sha256"]),
        size_bytes=int(values["size_bytes"]),
        runtime=str(values["runtime"]),
        network_ms=values["network_ms"],
        frame_ms=dict(values["frame_ms"]),
        stages=[dict(stage) for stage in values["stages"]],
        heads={str(head): dict(found) for head, found in values["heads"].items()},
        verdict=Verdict(verdict) if verdict else None,
        gates=_gates(values["gates"]),
        details=dict(values["details"]),
        run=_run(samples, rate_hz),
    )


def _run(samples: dict[str, Any], rate_hz: float) -> Run:
    frames = samples["frame_ns"]
    dropped = np.asarray([value is None for value in frames], bool)
    run = Run.from_latencies(
        np.asarray([value or 0 for value in frames], np.int64),
        stages_ns={
            str(name): np.asarray([value or 0 for value in values], np.int64)
            for name, values in samples["stages_ns"].items()
        },
        dropped=dropped,
        rate_hz=rate_hz,
    )
    return replace(run, warmup_ns=np.asarray(samples["warmup_ns"], np.int64))


def _moment(value: Any) -> int:
    """Returns a Unix time that has a date, the year of which has four digits."""
    if not 0 <= int(value) < _YEAR_10000_S:
        raise ValueError(f"it was made at {value!r}")
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value


def _gates(values: list[dict[str, Any]]) -> tuple[Gate, ...]:
    return tuple(_gate(value) for value in values)


def _gate(value: dict[str, Any]) -> Gate:
    detail = str(value["detail"])
    is_only_reported = detail.startswith(ONLY_REPORTED)
    return Gate(str(value["name"]), Verdict(value["verdict"]), detail, is_only_reported)
