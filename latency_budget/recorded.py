"""Reads latencies that were recorded elsewhere, so that a CI job without the device can judge them.

The columns are the same in every format (`docs/latency.md`): `latency_ms` from the frame's
arrival to its result, one `<stage>_ms` per stage, and optionally `dropped` (0 or 1) and `frame` (a
counter). The unit is part of the name: `_ns`, `_us` or `_ms`.
"""

import csv
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.file_content import read_content, read_text
from artifacts.strict_json import read_json
from latency_budget.dropped_flag import read_dropped
from latency_budget.repeated_rows import find_repeats
from latency_budget.reports.stored_samples import Circumstances, read_circumstances, read_columns
from latency_budget.run import Nanoseconds, Run
from latency_budget.statistics import find_step

UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_OTHER_CONTENT = {
    b"\x1f\x8b": "it is packed with gzip: unpack it first",
    b"PK": "it is an archive or a spreadsheet: save the table as text",
    b"\xff\xfe": "it is UTF-16, as PowerShell writes it: save it as UTF-8",
}
_CLOCK_NS = 10_000_000_000

Columns = dict[str, Sequence[Any]]


@dataclass(frozen=True)
class Recording:
    """What a file of samples holds.

    Attributes:
        run: the frames, of mode "recorded".
        circumstances: how they were measured, as a report.json tells; None for other files.
    """

    run: Run
    circumstances: Circumstances | None = None


def read_recording(path: Path | str, *, rate_hz: float | None = None) -> Recording:
    """Reads recorded latencies.

    Args:
        path: `.csv` (with a header), `.jsonl` (an object per frame), `.json` (an object of lists, a
            list of objects, or a report.json) or `.npz` (an array per column).
        rate_hz: the camera's rate, for the timeline.

    Returns:
        the frames, of mode "recorded", and how they were measured where a report tells it.
        Impossible values (NaN, zero, negative) and missing or repeated frame numbers become
        defects, which make a verdict invalid.

    Raises:
        InputError: the file cannot be read or lacks a latency column with a unit.
    """
    path = Path(path)
    if path.suffix.lower() not in READERS:
        fix = "unpack it first" if path.suffix.lower() in _PACKED else ""
        raise InputError(f"{path} has an unknown suffix", " or ".join(READERS), fix)
    try:
        columns, circumstances = READERS[path.suffix.lower()](path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        starts = (fix for mark, fix in _OTHER_CONTENT.items() if error.object.startswith(mark))
        raise InputError(
            f"{path} is not UTF-8 text", f"a {path.suffix} file", next(starts, "")
        ) from error
    except (ValueError, EOFError, RecursionError, zipfile.BadZipFile, csv.Error) as error:
        raise InputError(f"{path} is not a valid {path.suffix} file: {error}") from error
    run = _build_run(path, columns, rate_hz)
    if circumstances is not None:
        origins = circumstances.origins(run.count)
        run = replace(
            run,
            is_whole_frame=circumstances.is_whole_frame,
            origins=origins,
            is_unit_known=bool(circumstances.policy),
        )
    return Recording(run, circumstances)


def take_as_stage(recording: Recording, path: Path, stage: str) -> Recording:
    """Returns recorded latencies as those of one stage, which is a part of the frame.

    Args:
        recording: of whole latencies alone.
        path: their file, for the errors.
        stage: its name.

    Raises:
        InputError: the file tells by itself what its latencies are of.
    """
    run = recording.run
    if recording.circumstances is not None or run.stage_names:
        what = "is a report" if recording.circumstances else "has a column for each stage"
        raise InputError(
            f"{path} {what}, so that its latencies are not those of stage '{stage}' alone",
            "latencies and nothing else",
        )
    return replace(recording, run=replace(run, stage_names=(stage,), is_whole_frame=False))


def _build_run(path: Path, columns: Columns, rate_hz: float | None) -> Run:
    latency_name = _find_latency(path, columns)
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{path}: columns of different length: {lengths}", "one value per frame")
    _refuse_doubles(path, columns)
    dropped = _read_flags(path, columns.get("dropped"), lengths[latency_name])
    defects: list[str] = []
    latency = _read_times(path, latency_name, columns[latency_name], dropped, defects)
    stages = {
        name.rsplit("_", 1)[0]: _read_times(path, name, values, dropped, defects, zero=True)
        for name, values in columns.items()
        if name not in (latency_name, "dropped", "frame")
    }
    has_impossible_times = bool(defects)
    defects += _check_ids(path, columns.get("frame"))
    repeats = find_repeats(latency[~dropped])
    if repeats:
        defects.append(f"{repeats}: written twice?")
    return Run.from_latencies(
        latency,
        stages_ns=stages,
        dropped=dropped,
        rate_hz=rate_hz,
        defects=tuple(defects),
        has_impossible_times=has_impossible_times,
        rounding_ns=sum(find_step(times) for times in (latency, *stages.values())) // 2,
        is_numbered="frame" in columns or "dropped" in columns,
    )


def _find_latency(path: Path, columns: Columns) -> str:
    found = [name for name in columns if name in {f"latency_{unit}" for unit in UNITS}]
    if len(found) != 1:
        raise InputError(
            f"{path} has the columns {', '.join(columns) or 'none'}",
            "exactly one of latency_ms, latency_us or latency_ns",
            "the unit is part of a column's name; docs/latency.md converts other tools' files",
        )
    for number, name in enumerate(columns, 1):
        stage, _, unit = name.rpartition("_")
        if not name:
            raise InputError(
                f"{path}: column {number} has no name",
                "a stage with its unit, such as network_ms",
                "leave an index out (in pandas: index=False)",
            )
        if name not in ("dropped", "frame") and (unit not in UNITS or not stage):
            raise InputError(
                f"{path}: column '{name}' does not say its {'stage' if unit in UNITS else 'unit'}",
                f"such as network{name}" if unit in UNITS else f"such as {name}_ms or {name}_ns",
                "" if unit in UNITS else "leave out what is not how long a stage took",
            )
    return found[0]


def _refuse_doubles(path: Path, columns: Columns) -> None:
    stems = [name.rsplit("_", 1)[0] for name in columns if name not in ("dropped", "frame")]
    for stem in stems:
        if stems.count(stem) > 1:
            raise InputError(f"{path} has '{stem}' in two units", "one column per stage")


def _read_times(
    path: Path,
    name: str,
    values: Sequence[Any],
    dropped: NDArray[np.bool_],
    defects: list[str],
    *,
    zero: bool = False,
) -> Nanoseconds:
    """Returns nanoseconds, 0 for dropped frames; notes impossible values as defects."""
    scale = UNITS[name.rsplit("_", 1)[-1]]
    numbers = np.zeros(len(values))
    for index, value in enumerate(values):
        if not dropped[index]:
            numbers[index] = _read_number(path, name, index, value) * scale
    kept = numbers[~dropped]
    if len(kept) > 2 and kept[-1] > _CLOCK_NS and (np.diff(kept) > 0).all():
        raise InputError(
            f"{path}: column '{name}' counts up from row to row, as the time of day does",
            "how long each frame took",
            "subtract two times of a frame, or leave the column out",
        )
    bad = ~np.isfinite(numbers) | (numbers < 0) | (np.abs(numbers) > 1e15)
    bad |= (numbers == 0) & ~dropped & (not zero)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        shown = f"{numbers[at] / scale:g}"
        defects.append(f"{bad.sum()} impossible values of {name}, first at row {at} ({shown})")
    return np.where(bad, 0, np.round(np.where(bad, 0, numbers))).astype(np.int64)


def _read_number(path: Path, name: str, index: int, value: Any) -> float:
    try:
        if value is None or isinstance(value, bool) or (isinstance(value, str) and "_" in value):
            raise ValueError(value)
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{path}: {name} of row {index} is {value!r}",
            "a number",
            "dropped frames are numbered too"
            if name == "frame"
            else "a frame that was never processed has dropped = 1",
        ) from error


def _read_flags(path: Path, values: Sequence[Any] | None, count: int) -> NDArray[np.bool_]:
    if values is None:
        return np.zeros(count, bool)
    flags = np.zeros(count, bool)
    for index, value in enumerate(values):
        try:
            flags[index] = read_dropped(value)
        except ValueError as error:
            raise InputError(f"{path}: dropped of row {index} is {error}", "0 or 1") from error
    return flags


def _check_ids(path: Path, values: Sequence[Any] | None) -> list[str]:
    if values is None:
        return []
    ids = [_read_number(path, "frame", index, value) for index, value in enumerate(values)]
    steps = np.diff(np.asarray(ids))
    if (steps == 1).all():
        return []
    at = int(np.flatnonzero(steps != 1)[0])
    found = f"frame numbers are missing, repeated or out of order: {ids[at]:g}, {ids[at + 1]:g}"
    if steps[at] > 1:
        return [f"{found} (a frame that never came out is a row with dropped = 1)"]
    if ids[at + 1] in (0, 1):
        return [f"{found} (a counter that begins anew: judge each recording by itself)"]
    return [found]


_Content = tuple[Columns, Circumstances | None]


def _read_csv(path: Path) -> _Content:
    with io.StringIO(read_text(path), newline="") as stream:
        reader = csv.DictReader(stream, strict=True)
        names = [name.strip() for name in reader.fieldnames or []]
        for mark, word in ((";", "semicolons"), ("\t", "tabs")):
            if any(mark in name for name in names):
                raise ValueError(
                    f"{word} between its cells; expected commas, and points in numbers"
                )
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"its header has '{name}' twice")
        rows = [list(row.values()) for row in reader]
    for index, row in enumerate(rows):
        if len(row) != len(names) or any(cell is None or isinstance(cell, list) for cell in row):
            raise ValueError(f"row {index} has not {len(names)} cells")
    columns: Columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    return columns, None


def _read_jsonl(path: Path) -> _Content:
    lines = [line for line in read_text(path).splitlines() if line.strip()]
    return _from_rows([_read_line(index, line) for index, line in enumerate(lines)]), None


def _read_line(index: int, line: str) -> Any:
    try:
        return read_json(line)
    except JSONDecodeError as error:
        raise ValueError(f"row {index} is no JSON: {error.msg}, column {error.colno}") from error


def _read_json(path: Path) -> _Content:
    content = read_json(read_text(path))
    if isinstance(content, list):
        return _from_rows(content), None
    if not isinstance(content, dict):
        raise ValueError("neither an object nor a list")
    if "schema" in content:
        return dict(read_columns(content)), read_circumstances(content)
    for name, values in content.items():
        if not isinstance(values, list):
            raise ValueError(f"'{name}' is not a list")
    return content, None


def _from_rows(rows: list[Any]) -> Columns:
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a frame is not an object")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def _read_npz(path: Path) -> _Content:
    content = read_content(path)
    if not content.startswith((b"PK", b"\x93NUMPY")):
        raise ValueError("it is no archive, as np.savez writes it")
    loaded = np.load(io.BytesIO(content), allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        raise ValueError("it holds one array without a name, as np.save writes it")
    with loaded as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise ValueError(f"'{name}' has the shape {list(array.shape)}, not one axis")
        if array.dtype.kind in "mM":
            raise ValueError(f"'{name}' holds {array.dtype}, not numbers in the unit of its name")
    return {name: array.tolist() for name, array in arrays.items()}, None


READERS: dict[str, Callable[[Path], _Content]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".npz": _read_npz,
}
