"""One frame of a running pipeline, and how it is written as a line of JSON."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from artifacts.strict_json import read_json
from latency_budget.dropped_flag import read_dropped

UNITS = {"_ns": 1.0, "_us": 1e3, "_ms": 1e6}
_LATENCY = "latency"
_OTHER = ("frame", "dropped")


@dataclass(frozen=True)
class Sample:
    """One frame.

    Attributes:
        latency_ns: from its arrival to its result; None where it was dropped.
        stages_ns: durations by stage; may be empty.
        number: what its line counts as `frame`; None where it does not.
    """

    latency_ns: int | None
    stages_ns: Mapping[str, int] = field(default_factory=dict)
    number: int | None = None


def parse_line(line: str) -> Sample:
    """Reads `{"latency_ms": 24.8, "network_ms": 19.0, "dropped": 0}`; units `_ns`, `_us`, `_ms`.

    Raises:
        ValueError: the line is not such an object, a time is not a number above zero, or the flag
            is none.
    """
    values = read_json(line)
    if not isinstance(values, dict):
        raise ValueError("no object")
    if read_dropped(values.get("dropped")):
        return Sample(None, number=_number_of(values))
    times = {}
    for name, value in values.items():
        unit = name[-3:]
        if name in _OTHER or unit not in UNITS or value is None:
            continue
        times[name[:-3]] = _nanoseconds(name, value, UNITS[unit])
    if times.get(_LATENCY, 0) < 1:
        raise ValueError("no latency above zero")
    latency = times.pop(_LATENCY)
    return Sample(latency, times, _number_of(values))


def _number_of(values: Mapping[str, Any]) -> int | None:
    number = values.get("frame")
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _nanoseconds(name: str, value: Any, unit: float) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is no number")
    if not math.isfinite(value) or value < 0 or value * unit > 1e18:
        raise ValueError(f"{name} is {value}")
    return round(value * unit)
