"""What a weight rounding method is."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from compress.quantize.qparams import IntegerGrid


@dataclass(frozen=True, kw_only=True)
class RoundingProblem:
    """One layer's weights, seen as the matrix that multiplies its inputs.

    Attributes:
        weights: [out, in] float64, a row per output channel.
        scales: [out] the step of each row.
        grid: the integers that are allowed.
    """

    weights: NDArray[np.float64]
    scales: NDArray[np.float64]
    grid: IntegerGrid


class Rounding(Protocol):
    """Turns real weights into integers."""

    def round_weights(self, problem: RoundingProblem) -> NDArray[np.int32]:
        """Returns [out, in] integers of the grid, so that weights ~ integers * scales."""
        ...
