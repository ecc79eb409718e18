"""What an interrupted quantization had decided, so that the next one need not decide again.

Going on means walking the graph again with the integers that are known: the walk is a forward pass,
finding integers is what takes long. The result is the same as without the interruption. Nothing
waits for the disk: what a power loss damaged is noticed by its checksum, and decided again.
"""

import hashlib
import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.atomic import atomic_path
from compress.quantize.graph import Array
from compress.quantize.layer_weights import QuantizedWeight
from compress.quantize.qparams import IntegerGrid, QParams


class DecisionLog:
    """One file per decision in a folder; files are written whole or not at all.

    Args:
        folder: made when the first decision is kept; None keeps nothing. The caller names it
            after everything that decides the result: model, samples, settings, versions.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def with_float_nodes(self, kept: frozenset[str]) -> "DecisionLog":
        """Returns the log of the same network with other nodes in float."""
        if self._folder is None or not kept:
            return self
        digest = hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest()[:32]
        return self.branch(f"kept-{digest}")

    def branch(self, name: str) -> "DecisionLog":
        """Returns the log of the same network, quantized in another way."""
        return self if self._folder is None else DecisionLog(self._folder / name)

    def find_qparams(self, tensor: str) -> QParams | None:
        """Returns the qparams that were decided for a tensor."""
        found = _read(self._path("activation", tensor))
        if found is None:
            return None
        about, _ = found
        return QParams(**about | {"grid": IntegerGrid(**about["grid"])})

    def keep_qparams(self, tensor: str, qparams: QParams) -> None:
        """Keeps the qparams of a tensor."""
        _write(self._path("activation", tensor), asdict(qparams))

    def find_weight(self, node: str) -> tuple[QuantizedWeight, str] | None:
        """Returns a layer's integers, and how they were found."""
        found = _read(self._path("weight", node))
        if found is None:
            return None
        about, arrays = found
        how = about.pop("how")
        weight = QuantizedWeight(integers=arrays["integers"], scales=arrays["scales"], **about)
        return weight, how

    def keep_weight(self, node: str, weight: QuantizedWeight, how: str) -> None:
        """Keeps a layer's integers, and how they were found."""
        about = {"axis": weight.axis, "block": weight.block, "bits": weight.bits, "how": how}
        path = self._path("weight", node)
        _write(path, about, integers=weight.integers, scales=weight.scales)

    def _path(self, kind: str, name: str) -> Path | None:
        if self._folder is None:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        return self._folder / f"{kind}-{digest}.npz"


def _write(path: Path | None, about: dict[str, Any], **arrays: Array) -> None:
    if path is None:
        return
    with atomic_path(path, is_lasting=False) as draft, draft.open("wb") as file:
        members: dict[str, Any] = {"about": np.array(json.dumps(about)), **arrays}
        np.savez(file, **members)


def _read(path: Path | None) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """Returns what `_write` wrote; None where there is no such file, or it is damaged."""
    if path is None or not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as values:
            arrays = {name: values[name] for name in values.files}
    except (zipfile.BadZipFile, EOFError, ValueError):
        return None
    return json.loads(str(arrays.pop("about"))), arrays
