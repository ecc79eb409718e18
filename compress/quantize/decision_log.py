"""What an interrupted quantization had decided, so that the next one need not decide again.

Going on means walking the graph again with the integers that are known: the walk is a forward pass,
finding integers is what takes long. The result is the same as without the interruption.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from artifacts.atomic import atomic_path, write_json
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
        path = self._path("activation", tensor, ".json")
        if path is None or not path.exists():
            return None
        values = json.loads(path.read_text())
        return QParams(**values | {"grid": IntegerGrid(**values["grid"])})

    def keep_qparams(self, tensor: str, qparams: QParams) -> None:
        """Keeps the qparams of a tensor."""
        path = self._path("activation", tensor, ".json")
        if path is not None:
            write_json(path, asdict(qparams))

    def find_weight(self, node: str) -> tuple[QuantizedWeight, str] | None:
        """Returns a layer's integers, and how they were found."""
        path = self._path("weight", node, ".npz")
        if path is None or not path.exists():
            return None
        with np.load(path, allow_pickle=False) as values:
            about = json.loads(str(values["about"]))
            how = about.pop("how")
            weight = QuantizedWeight(integers=values["integers"], scales=values["scales"], **about)
        return weight, how

    def keep_weight(self, node: str, weight: QuantizedWeight, how: str) -> None:
        """Keeps a layer's integers, and how they were found."""
        path = self._path("weight", node, ".npz")
        if path is None:
            return
        about = {"axis": weight.axis, "block": weight.block, "bits": weight.bits, "how": how}
        with atomic_path(path) as draft, draft.open("wb") as file:
            np.savez(
                file,
                integers=weight.integers,
                scales=weight.scales,
                about=np.array(json.dumps(about)),
            )

    def _path(self, kind: str, name: str, suffix: str) -> Path | None:
        if self._folder is None:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        return self._folder / f"{kind}-{digest}{suffix}"
