"""Reads the machine's counters from `/proc` and `/sys`; what is not there is None, never zero."""

import os
import platform
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Snapshot:
    """Counters of the machine at one moment; None where the machine does not tell.

    Attributes:
        involuntary_switches: of the calling thread, since it began.
        major_faults: page faults of the process that had to read a disk.
        steal_ticks: time that the hypervisor gave to others, and `total_ticks` of all processors.
        throttle_count: thermal throttling events of all processors.
        pressure: share of the last 10 s in percent that some task waited, per resource.
        wait_ns: how long the calling thread was ready to run while its processor ran another.
        helpers_wait_ns: the same of the process's other threads together, those of a runtime.
        busy_ticks: time that all processors worked, for whomever.
        own_ticks: time that the processors worked for this process, all its threads together.
        swapped_pages: pages that the machine swapped in or out.
    """

    involuntary_switches: int | None
    major_faults: int | None
    steal_ticks: int | None
    total_ticks: int | None
    throttle_count: int | None
    pressure: dict[str, float | None]
    wait_ns: int | None = None
    busy_ticks: int | None = None
    own_ticks: int | None = None
    swapped_pages: int | None = None
    helpers_wait_ns: int | None = None


def read_snapshot(root: Path = Path("/")) -> Snapshot:
    """Reads the counters from `/proc` and `/sys` below `root`, on the thread that is timed."""
    ticks = _read_ticks(root)
    return Snapshot(
        involuntary_switches=_read_switches(root),
        major_faults=resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
        steal_ticks=ticks[7] if len(ticks) > 7 else None,
        total_ticks=sum(ticks[:8]) if ticks else None,
        throttle_count=_read_throttles(root),
        pressure={name: _read_pressure(root, name) for name in ("cpu", "io", "memory")},
        wait_ns=_read_wait(root / "proc/thread-self"),
        helpers_wait_ns=_read_helpers_wait(root),
        busy_ticks=sum(ticks[:8]) - ticks[3] - ticks[4] - ticks[7] if len(ticks) > 7 else None,
        own_ticks=_read_own_ticks(root),
        swapped_pages=_read_swapped(root),
    )


def describe_machine(root: Path = Path("/")) -> dict[str, Any]:
    """Returns what identifies the machine in a report, without its name or address."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in read_text_or_empty(root / "proc/cpuinfo").splitlines()
            if line.lower().startswith(("model name", "hardware"))
        ),
        platform.machine(),
    )
    return {
        "processor": model,
        "processors": os.cpu_count() or 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def read_text_or_empty(path: Path) -> str:
    """Returns a small file's text, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number_or_none(read: Callable[[], str]) -> float | None:
    try:
        return float(read())
    except (ValueError, IndexError):
        return None


def _read_switches(root: Path) -> int | None:
    for line in read_text_or_empty(root / "proc/thread-self/status").splitlines():
        if line.startswith("nonvoluntary_ctxt_switches:"):
            value = _number_or_none(line.split(":")[1].strip)
            return None if value is None else int(value)
    return None


def _read_ticks(root: Path) -> list[int]:
    first = read_text_or_empty(root / "proc/stat").split("\n", 1)[0].split()
    return [int(part) for part in first[1:] if part.isdigit()] if first[:1] == ["cpu"] else []


def _read_wait(folder: Path) -> int | None:
    parts = read_text_or_empty(folder / "schedstat").split()
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else None


def _read_helpers_wait(root: Path) -> int | None:
    own = _read_wait(root / "proc/thread-self")
    waits = [_read_wait(folder) for folder in (root / "proc/self/task").glob("*")]
    known = [wait for wait in waits if wait is not None]
    return None if own is None or not known else max(0, sum(known) - own)


def _read_own_ticks(root: Path) -> int | None:
    """User and system time of the process: fields 14 and 15, counted from behind its name."""
    parts = read_text_or_empty(root / "proc/self/stat").rpartition(")")[2].split()
    return int(parts[11]) + int(parts[12]) if len(parts) > 12 else None


def _read_swapped(root: Path) -> int | None:
    pages = [
        int(line.split()[1])
        for line in read_text_or_empty(root / "proc/vmstat").splitlines()
        if line.startswith(("pswpin ", "pswpout "))
    ]
    return sum(pages) if pages else None


def _read_throttles(root: Path) -> int | None:
    folder = root / "sys/devices/system/cpu"
    counts = [
        read_text_or_empty(path).strip()
        for path in folder.glob("cpu*/thermal_throttle/*_throttle_count")
    ]
    numbers = [int(count) for count in counts if count.isdigit()]
    return sum(numbers) if numbers else None


def _read_pressure(root: Path, name: str) -> float | None:
    for line in read_text_or_empty(root / f"proc/pressure/{name}").splitlines():
        if line.startswith("some "):
            return _number_or_none(lambda: line.split("avg10=")[1].split()[0])  # noqa: B023
    return None
