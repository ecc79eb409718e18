"""What an interrupted quantization had decided, so that the next one need not decide again.

Going on means walking the graph again with the integers that are known: the walk is a forward pass,
finding integers is what takes long. The result is the same as without the interruption. Nothing
waits for the disk: what a power loss damaged is noticed by its checksum, and decided again. Nor is
anything written by a run of a few seconds, whose files would take a good part of them.
"""

import hashlib
import json
import time
import zipfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.atomic import atomic_path
from artifacts.errors import InputError
from compress.quantize.graph import Array
from compress.quantize.layer_weights import QuantizedWeight
from compress.quantize.qparams import IntegerGrid, QParams

_Decision = tuple[dict[str, Any], dict[str, Array]]

UNWRITTEN_SECONDS = 5.0
"""What was decided since the last writing is lost to a kill, though not to an interrupt."""


class DecisionLog:
    """One file per decision in a folder; files are written whole or not at all.

    Args:
        folder: made when the first decision is written; None keeps nothing. The caller names it
            after everything that decides the result: model, samples, settings, versions.
        waiting: what another log of the same run has not written yet.
    """

    def __init__(self, folder: Path | None = None, waiting: "_Waiting | None" = None) -> None:
        self._folder = folder
        self._waiting = _Waiting() if waiting is None else waiting

    def with_float_nodes(self, kept: frozenset[str]) -> "DecisionLog":
        """Returns the log of the same network with other nodes in float."""
        if self._folder is None or not kept:
            return self
        digest = hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest()[:32]
        return self.branch(f"kept-{digest}")

    def branch(self, name: str) -> "DecisionLog":
        """Returns the log of the same network, quantized in another way."""
        return self if self._folder is None else DecisionLog(self._folder / name, self._waiting)

    def __enter__(self) -> "DecisionLog":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Writes what waits to be written where an error or an interrupt ends the run."""
        if error is not None:
            with suppress(InputError, OSError):
                self._waiting.write()

    def find_qparams(self, tensor: str) -> QParams | None:
        """Returns the qparams that were decided for a tensor."""
        found = self._waiting.read(self._path("activation", tensor))
        if found is None:
            return None
        about, _ = found
        return QParams(**about | {"grid": IntegerGrid(**about["grid"])})

    def keep_qparams(self, tensor: str, qparams: QParams) -> None:
        """Keeps the qparams of a tensor."""
        self._waiting.keep(self._path("activation", tensor), asdict(qparams))

    def find_weight(self, node: str) -> tuple[QuantizedWeight, str] | None:
        """Returns a layer's integers, and how they were found."""
        found = self._waiting.read(self._path("weight", node))
        if found is None:
            return None
        about, arrays = dict(found[0]), found[1]
        how = about.pop("how")
        weight = QuantizedWeight(integers=arrays["integers"], scales=arrays["scales"], **about)
        return weight, how

    def keep_weight(self, node: str, weight: QuantizedWeight, how: str) -> None:
        """Keeps a layer's integers, and how they were found."""
        about = {"axis": weight.axis, "block": weight.block, "bits": weight.bits, "how": how}
        path = self._path("weight", node)
        self._waiting.keep(path, about, integers=weight.integers, scales=weight.scales)

    def _path(self, kind: str, name: str) -> Path | None:
        if self._folder is None:
            return None
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        return self._folder / f"{kind}-{digest}.npz"


class _Waiting:
    """Decisions by the path of their file, as long as that is not written."""

    def __init__(self) -> None:
        self._kept: dict[Path, _Decision] = {}
        self._written = time.monotonic()

    def keep(self, path: Path | None, about: dict[str, Any], **arrays: Array) -> None:
        """Keeps a decision; writes all if the last were written long ago."""
        if path is None:
            return
        self._kept[path] = about, arrays
        if time.monotonic() - self._written >= UNWRITTEN_SECONDS:
            self.write()

    def read(self, path: Path | None) -> _Decision | None:
        """Returns a decision that was kept, in this run or before."""
        if path is None:
            return None
        return self._kept.get(path) or _read(path)

    def write(self) -> None:
        """Writes all that is kept."""
        for path, (about, arrays) in self._kept.items():
            _write(path, about, arrays)
        self._kept.clear()
        self._written = time.monotonic()


def _write(path: Path, about: dict[str, Any], arrays: dict[str, Array]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path, is_lasting=False) as draft, draft.open("wb") as file:
        members: dict[str, Any] = {"about": np.array(json.dumps(about)), **arrays}
        np.savez(file, **members)


def _read(path: Path) -> _Decision | None:
    """Returns what `_write` wrote; None where there is no such file, or it is damaged."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as values:
            arrays = {name: values[name] for name in values.files}
    except (zipfile.BadZipFile, EOFError, ValueError):
        return None
    return json.loads(str(arrays.pop("about"))), arrays
