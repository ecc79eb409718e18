"""Keeps runs in an `.npz`: how a process hands what it measured to the one that asked."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from latency_budget.run import Run
from latency_budget.sensors import Snapshot

_ARRAYS = ("arrival_ns", "marks_ns", "dropped", "warmup_ns", "counters")
_VALUES = ("mode", "rate_hz", "stage_names", "collections_ns", "stops", "origins")
_FLAGS = ("is_whole_frame", "defects")
_HEADER = "header"


def save_runs(path: Path, runs: Mapping[str, Run], facts: Mapping[str, Any]) -> None:
    """Writes runs and JSON facts into one file.

    Args:
        path: the `.npz` to write.
        runs: by name, without "/" in it.
        facts: whatever JSON holds.
    """
    arrays: dict[str, Any] = {}
    header: dict[str, Any] = {"facts": facts, "runs": {}}
    for name, run in runs.items():
        header["runs"][name] = {
            **{key: getattr(run, key) for key in (*_VALUES, *_FLAGS)},
            "snapshots": [asdict(part) for part in run.snapshots] if run.snapshots else None,
        }
        for key in _ARRAYS:
            if getattr(run, key) is not None:
                arrays[f"{name}/{key}"] = getattr(run, key)
    arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, **arrays)


def load_runs(path: Path) -> tuple[dict[str, Run], dict[str, Any]]:
    """Reads what `save_runs` wrote; nothing in the file can run code."""
    with np.load(path, allow_pickle=False) as archive:
        header = json.loads(archive[_HEADER].tobytes())
        runs = {name: _read_run(archive, name, row) for name, row in header["runs"].items()}
    return runs, header["facts"]


def _read_run(archive: Any, name: str, row: dict[str, Any]) -> Run:
    values: dict[str, Any] = {key: _freeze(row[key]) for key in (*_VALUES, *_FLAGS)}
    for key in _ARRAYS:
        full_name = f"{name}/{key}"
        values[key] = archive[full_name] if full_name in archive.files else None
    return Run(**values, snapshots=_read_snapshots(row["snapshots"]))


def _freeze(value: Any) -> Any:
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


def _read_snapshots(values: list[dict[str, Any]] | None) -> tuple[Snapshot, Snapshot] | None:
    return None if values is None else (Snapshot(**values[0]), Snapshot(**values[1]))
