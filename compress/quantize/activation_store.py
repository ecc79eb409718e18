"""The activations of the calibration samples, in memory up to a cap and on disk beyond it."""

import tempfile
from pathlib import Path
from typing import Self

import numpy as np

from artifacts.errors import FramefitError
from compress.quantize.graph import Array


class ActivationStore:
    """Holds one array per tensor and sample; use it as a context manager.

    Args:
        samples: how many samples there are.
        memory_cap_bytes: arrays beyond this sum are written to a temporary folder, and read from
            there each time they are asked for.
    """

    def __init__(self, samples: int, memory_cap_bytes: int) -> None:
        self.samples = samples
        self._cap = memory_cap_bytes
        self._slots: dict[str, list[Array | Path | None]] = {}
        self._bytes_held = 0
        self._written = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._slots.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._slots

    def put(self, tensor: str, sample: int, array: Array) -> None:
        """Keeps one sample's value of a tensor, replacing the one it had."""
        slots = self._slots.setdefault(tensor, [None] * self.samples)
        self._drop(slots[sample])
        if array.nbytes and self._bytes_held + array.nbytes > self._cap:
            slots[sample] = self._spill(array)
        else:
            self._bytes_held += array.nbytes
            slots[sample] = array

    def get(self, tensor: str, sample: int) -> Array:
        """Returns one sample's value of a tensor."""
        value = self._slots[tensor][sample]
        if value is None:
            raise FramefitError(f"sample {sample} of '{tensor}' is not there")
        return np.asarray(np.load(value, allow_pickle=False)) if isinstance(value, Path) else value

    def free(self, tensor: str, sample: int) -> None:
        """Forgets one sample's value of a tensor, if there is one."""
        slots = self._slots.get(tensor)
        if slots is not None:
            self._drop(slots[sample])
            slots[sample] = None

    def _drop(self, value: Array | Path | None) -> None:
        if isinstance(value, Path):
            value.unlink()
        elif value is not None:
            self._bytes_held -= value.nbytes

    def _spill(self, array: Array) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="framefit-")
        path = Path(self._folder.name, f"{self._written}.npy")
        self._written += 1
        try:
            np.save(path, array)
        except OSError as error:
            raise FramefitError(
                f"cannot write {array.nbytes} bytes of activations to {path.parent}: "
                f"{error.strerror or error}",
                fix="free some disk space, set TMPDIR to a larger disk, or use fewer samples",
            ) from error
        return path
