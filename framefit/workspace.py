"""The workspace: `framefit.toml`, and a journal of what was made, in the current folder."""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.file_content import read_text
from artifacts.file_kind import describe_absence
from artifacts.input_spec import InputSpec
from artifacts.strict_toml import read_toml
from latency_budget.budget_values import refuse_unknown

SETTINGS_FILE = "framefit.toml"
STATE_FOLDER = ".framefit"
JOURNAL_FILE = "journal.jsonl"
KINDS = ("checkpoint", "float-onnx", "int8-onnx", "plan")
MAX_SETTINGS_BYTES = 1_000_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WorkspaceSettings:
    """What `framefit.toml` says.

    Attributes:
        input: the input spec's values that are given, by name.
        datasets: path of each named dataset, relative to the workspace.
    """

    input: dict[str, Any] = field(default_factory=dict)
    datasets: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """A file that a command made.

    Attributes:
        path: where it is.
        kind: one of `KINDS`.
        sha256: its digest when it was made.
        command: what made it.
    """

    path: Path
    kind: str
    sha256: str
    command: str


class Workspace:
    """A folder with framefit's settings and journal; neither has to exist.

    Args:
        folder: the folder, the current one by default.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path()
        self._journal = self.folder / STATE_FOLDER / JOURNAL_FILE

    def read_settings(self) -> WorkspaceSettings:
        """Reads `framefit.toml`.

        Returns:
            its settings; empty ones where there is no such file.

        Raises:
            InputError: it is not TOML, or has an unknown key or a value of the wrong kind.
        """
        path = self.folder / SETTINGS_FILE
        if not path.exists():
            return WorkspaceSettings()
        try:
            if path.stat().st_size > MAX_SETTINGS_BYTES:
                raise InputError(f"{path} is larger than {MAX_SETTINGS_BYTES} bytes")
            values = read_toml(read_text(path))
        except InputError:
            raise
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"cannot read {path}: {error}", "a TOML file") from error
        tables = {"input": set(InputSpec.__dataclass_fields__), "datasets": None}
        refuse_unknown(str(path), "", values, set(tables))
        for name, known in tables.items():
            table = values.get(name, {})
            if not isinstance(table, Mapping):
                raise InputError(f"{path}: '{name}' is {table!r}", f"a table [{name}]")
            if known is not None:
                refuse_unknown(str(path), f"{name}.", table, known)
        return WorkspaceSettings(
            input=_check_input(values.get("input", {}), path),
            datasets={
                name: self.folder / _expand_home(_check_path(value, f"{path}: datasets.{name}"))
                for name, value in values.get("datasets", {}).items()
            },
        )

    def find_dataset(self, data: str) -> Path:
        """Returns the path of a dataset: the path itself, or one named in `framefit.toml`."""
        path = Path(data)
        if not describe_absence(path):
            return path
        return self.read_settings().datasets.get(data, _expand_home(path))

    def record_artifact(self, path: Path | str, kind: str, command: str) -> None:
        """Adds a file to the journal; where the folder cannot be written that is only logged.

        Args:
            path: the file.
            kind: one of `KINDS`.
            command: what made it, such as "compress quantize".

        Raises:
            ValueError: the kind is not one of `KINDS`.
        """
        if kind not in KINDS:
            raise ValueError(f"kind is '{kind}', expected one of {', '.join(KINDS)}")
        entry = {
            "path": os.path.relpath(path, self.folder),
            "kind": kind,
            "sha256": sha256_file(path),
            "command": command,
        }
        try:
            self._journal.parent.mkdir(exist_ok=True)
            ignore = self._journal.with_name(".gitignore")
            if not ignore.exists():
                ignore.write_text("*\n")
            self._append(json.dumps(entry))
        except OSError as error:
            _log.debug("journal %s not written: %s", self._journal, error)

    def find_state(self, *parts: str) -> Path | None:
        """Returns where a command may keep what a later run can use; None where it cannot.

        That is warned of: a folder that nothing can be written to stops no work whose result goes
        elsewhere.

        Args:
            parts: names of folders below the workspace's own; the last need not exist.
        """
        path = Path(self.folder, STATE_FOLDER, *parts)
        existing = next(item for item in (path, *path.parents) if item.exists())
        if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
            return path
        _log.warning(
            "%s cannot be written: a run that is interrupted will begin anew", existing.resolve()
        )
        return None

    def find_artifact(self, *kinds: str) -> Path:
        """Returns the newest artifact of the given kinds that is still as it was made.

        Args:
            kinds: of `KINDS`; with several, the newest of any of them.

        Raises:
            InputError: there is none.
        """
        for artifact in reversed(self.list_artifacts()):
            if artifact.kind in kinds and artifact.path.is_file():
                if sha256_file(artifact.path) == artifact.sha256:
                    return artifact.path
                _log.debug("%s was changed since it was made", artifact.path)
        raise InputError(
            f"no MODEL was given, and the workspace {self.folder.resolve()} has made no "
            f"{' or '.join(kinds)} file",
            "the path of a model",
            "name it, or make one first (compress quantize, export)",
        )

    def list_artifacts(self) -> list[Artifact]:
        """Returns the journal, oldest first; a line torn by a crash is left out."""
        try:
            lines = self._journal.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        found = (self._parse(line) for line in lines)
        return [artifact for artifact in found if artifact is not None]

    def _parse(self, line: str) -> Artifact | None:
        try:
            entry = json.loads(line)
            names = ("path", "kind", "sha256", "command")
            path, kind, digest, command = (str(entry[name]) for name in names)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return Artifact(self.folder / path, kind, digest, command)

    def _append(self, line: str) -> None:
        """Adds one line in one write, behind a line break if the last line was torn."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        descriptor = os.open(self._journal, flags, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            rest = (("\n" if is_torn else "") + line + "\n").encode()
            while rest:  # A write may take a part only, where it is interrupted.
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_input(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    checked = dict(values)
    for name in ("mean", "std"):
        if name in checked and not _is_numbers(checked[name]):
            raise InputError(f"{path}: input.{name} is {checked[name]!r}", "a list of numbers")
    if "pixel_scale" in checked and not _is_numbers([checked["pixel_scale"]]):
        raise InputError(f"{path}: input.pixel_scale is {checked['pixel_scale']!r}", "a number")
    for name in ("color", "resize"):
        if not isinstance(checked.get(name, ""), str):
            raise InputError(f"{path}: input.{name} is {checked[name]!r}", "a word")
    return checked


def _is_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def _check_path(value: Any, label: str) -> Path:
    if not isinstance(value, str) or not value:
        raise InputError(f"{label} is {value!r}", "a path")
    return Path(value)


def _expand_home(path: Path) -> Path:
    """Returns a path whose ~ is the home folder, as no shell makes it in a file or behind a =."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
