"""Rounding to the nearest integer."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compress.quantize.qparams import round_to_grid
from compress.quantize.rounding.contract import RoundedWeights, RoundingProblem


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """Rounds each weight on its own, halves to even."""

    needs_inputs: ClassVar[bool] = False

    def round_weights(self, problem: RoundingProblem) -> RoundedWeights:
        """Returns the nearest integers of the grid; the scales stay as they are."""
        integers = round_to_grid(problem.weights / problem.steps, problem.grid)
        return RoundedWeights(
            integers=integers.astype(np.int32), scales=problem.scales, how="nearest"
        )
