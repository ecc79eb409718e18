"""What an observer is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from compress.quantize.qparams import IntegerGrid
from compress.quantize.spread_values import spread_places

BINS = 4096
VALUES_PER_SAMPLE = 1 << 18


@dataclass(frozen=True, kw_only=True)
class ObservedTensor:
    """What calibration saw of one tensor.

    Attributes:
        low: the smallest value.
        high: the largest value.
        counts: [BINS] how many of the looked-at values fell into each of BINS equal parts of
            [low, high].
    """

    low: float
    high: float
    counts: NDArray[np.int64]

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value, or 0 where that is beyond them."""
        return min(self.low, 0.0), max(self.high, 0.0)

    @cached_property
    def centres(self) -> NDArray[np.float64]:
        """[BINS] the middle of each part."""
        width = (self.high - self.low) / BINS
        return np.asarray(self.low + width * (np.arange(BINS) + 0.5), np.float64)

    @cached_property
    def occupied(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Middle and count of each part that values fell into."""
        filled = np.flatnonzero(self.counts)
        return self.centres[filled], self.counts[filled].astype(np.float64)

    @classmethod
    def of(cls, arrays: list[NDArray], extremes: tuple[float, float] | None = None) -> Self:
        """Observes a tensor.

        Args:
            arrays: one array per calibration sample. The histogram counts at most
                VALUES_PER_SAMPLE of each, spread over all, and none where neighbouring parts
                would not differ in float32.
            extremes: the smallest and the largest value; None for those of `arrays`.
        """
        low, high = extremes or (
            float(min(array.min(initial=np.inf) for array in arrays)),
            float(max(array.max(initial=-np.inf) for array in arrays)),
        )
        counts = np.zeros(BINS, np.int64)
        if (high - low) / BINS > np.spacing(np.float32(max(-low, high))):
            for array in arrays:
                places = spread_places(array.size, VALUES_PER_SAMPLE)
                counts += count_parts(array.reshape(-1)[places], low, high)
        return cls(low=low, high=high, counts=counts)


def count_parts(values: NDArray, low: float, high: float) -> NDArray[np.int64]:
    """Returns [BINS], a histogram as `np.histogram` counts it, up to rounding at the edges."""
    places = np.subtract(values, low, dtype=np.float64)
    places *= BINS / (high - low)
    parts = places.astype(np.int32)
    return np.bincount(np.minimum(parts, BINS - 1, out=parts), minlength=BINS)


OutputError = Callable[[tuple[float, float]], float]


class Observer(Protocol):
    """Chooses which range of a tensor's values the integers shall cover."""

    def choose_range(
        self,
        tensor: ObservedTensor,
        grid: IntegerGrid,
        *,
        symmetric: bool,
        output_error: OutputError | None = None,
    ) -> tuple[float, float]:
        """Returns (low, high) with low <= 0 <= high, inside what was seen (or 0).

        Only of few values may an observer expect that others will reach farther.

        Args:
            tensor: what was seen.
            grid: the integers that are allowed.
            symmetric: with a zero_point in the middle of the grid.
            output_error: tells the squared error of the layer's output for a range of this input;
                None where no layer can be asked.
        """
        ...
