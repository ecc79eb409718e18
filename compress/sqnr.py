"""Signal to quantization noise."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from compress.errors import CalibrationError

EXACT_DB = 200.0


@dataclass
class SignalToNoise:
    """Sums a tensor's power and its error's power over samples.

    Attributes:
        signal: sum of squares of the reference.
        noise: sum of squares of the difference.
        max_abs: largest absolute difference.
    """

    signal: float = 0.0
    noise: float = 0.0
    max_abs: float = 0.0

    def update(self, reference: NDArray, candidate: NDArray) -> None:
        """Adds one sample; values that are equal infinities on both sides count as equal.

        Raises:
            CalibrationError: the shapes differ.
        """
        require_same_shape(reference, candidate)
        if reference.dtype == np.float32 and self._update_fast(reference, candidate):
            return
        wanted = reference.astype(np.float64, copy=False)
        error = np.subtract(candidate, wanted, out=np.zeros_like(wanted), where=wanted != candidate)
        finite = wanted[np.isfinite(wanted)]
        self.signal += float(np.sum(np.square(finite)))
        self.noise += float(np.sum(np.square(error)))
        self.max_abs = max(self.max_abs, float(np.max(np.abs(error), initial=0.0)))

    def add(self, other: "SignalToNoise") -> None:
        """Adds what another one summed up."""
        self.signal += other.signal
        self.noise += other.noise
        self.max_abs = max(self.max_abs, other.max_abs)

    @classmethod
    def sum(cls, parts: Iterable["SignalToNoise"]) -> Self:
        """Returns what others summed up together."""
        total = cls()
        for part in parts:
            total.add(part)
        return total

    def _update_fast(self, reference: NDArray, candidate: NDArray) -> bool:
        """Adds one sample of single precision, unless a sum is not finite there."""
        error = np.subtract(candidate, reference, dtype=np.float32).reshape(-1)
        wanted = np.ascontiguousarray(reference).reshape(-1)
        signal, noise = float(np.dot(wanted, wanted)), float(np.dot(error, error))
        if not (math.isfinite(signal) and math.isfinite(noise)):
            return False
        self.signal += signal
        self.noise += noise
        self.max_abs = max(
            self.max_abs, float(error.max(initial=0.0)), -float(error.min(initial=0.0))
        )
        return True

    @property
    def sqnr_db(self) -> float:
        """10 log10(signal / noise), at most EXACT_DB; -EXACT_DB where there is no signal.

        A NaN in the candidate gives -EXACT_DB.
        """
        if self.noise == 0.0:
            return EXACT_DB
        if self.signal == 0.0 or not math.isfinite(self.noise):
            return -EXACT_DB
        return float(np.clip(10 * math.log10(self.signal / self.noise), -EXACT_DB, EXACT_DB))


def require_same_shape(reference: NDArray, candidate: NDArray) -> None:
    """Refuses a tensor that has another shape behind quantized layers.

    Raises:
        CalibrationError: the shapes differ, since a decision before the tensor fell otherwise.
    """
    if reference.shape != candidate.shape:
        raise CalibrationError(
            f"a tensor has the shape {list(reference.shape)} in the float network and "
            f"{list(candidate.shape)} behind quantized layers",
            "shapes that no decision inside the network changes",
            "cut the network before it chooses boxes, and choose them behind it",
        )


def to_db(signal: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns 10 log10(signal / noise), within ±EXACT_DB; EXACT_DB where there is no noise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = 10 * np.log10(signal / noise)
    return np.asarray(np.clip(np.where(noise > 0, values, EXACT_DB), -EXACT_DB, EXACT_DB))


def format_db(value: float) -> str:
    """Returns a figure in dB as it is shown; one that stands for no noise as "exact"."""
    return "exact" if value > EXACT_DB - 0.5 else f"{value:.1f}"
