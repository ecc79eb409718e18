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
        memory_cap_bytes: arrays beyond this sum are written to a temporary folder and mapped.
    """

    def __init__(self, samples: int, memory_cap_bytes: int) -> None:
        self.samples = samples
        self._cap = memory_cap_bytes
        self._arrays: dict[str, list[Array | None]] = {}
        self._files: dict[str, list[Path]] = {}
        self._bytes_held = 0
        self._written = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._arrays.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._arrays

    def put(self, tensor: str, sample: int, array: Array) -> None:
        """Keeps one sample's value of a tensor, replacing the one it had."""
        slots = self._arrays.setdefault(tensor, [None] * self.samples)
        old = slots[sample]
        if old is not None and not isinstance(old, np.memmap):
            self._bytes_held -= old.nbytes
        if array.nbytes and self._bytes_held + array.nbytes > self._cap:
            slots[sample] = self._spill(tensor, array)
        else:
            self._bytes_held += array.nbytes
            slots[sample] = array

    def get(self, tensor: str, sample: int) -> Array:
        """Returns one sample's value of a tensor."""
        array = self._arrays[tensor][sample]
        if array is None:
            raise FramefitError(f"sample {sample} of '{tensor}' was never computed")
        return array

    def all(self, tensor: str) -> list[Array]:
        """Returns the tensor's values, one per sample."""
        return [self.get(tensor, sample) for sample in range(self.samples)]

    def free(self, tensor: str) -> None:
        """Forgets a tensor."""
        for array in self._arrays.pop(tensor, []):
            if array is not None and not isinstance(array, np.memmap):
                self._bytes_held -= array.nbytes
        for path in self._files.pop(tensor, []):
            path.unlink()

    def _spill(self, tensor: str, array: Array) -> Array:
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
        self._files.setdefault(tensor, []).append(path)
        return np.asanyarray(np.load(path, mmap_mode="r"))
