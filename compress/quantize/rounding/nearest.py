"""Rounding to the nearest integer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compress.quantize.rounding.contract import RoundingProblem


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """Rounds each weight on its own, halves to even."""

    def round_weights(self, problem: RoundingProblem) -> NDArray[np.int32]:
        """Returns [out, in] integers of the grid."""
        integers = np.rint(problem.weights / problem.scales[:, None])
        return np.clip(integers, problem.grid.lowest, problem.grid.highest).astype(np.int32)
