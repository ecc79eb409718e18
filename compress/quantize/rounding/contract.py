"""What a weight rounding method is."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from compress.quantize.qparams import IntegerGrid
from compress.quantize.rounding.moments import Moments


@dataclass(frozen=True, kw_only=True)
class RoundingProblem:
    """One layer's weights, seen as the matrix that multiplies its inputs.

    Attributes:
        weights: [out, in] float64, a row per output channel.
        scales: [out, blocks] the step of each block of each row.
        blocks: [in] which block of its row a weight belongs to.
        grid: the integers that are allowed.
        fit: of the calibration pictures that a method may fit to; None where none were seen.
        held_out: of the other ones, to choose by; None where there is one picture only.
    """

    weights: NDArray[np.float64]
    scales: NDArray[np.float64]
    blocks: NDArray[np.int64]
    grid: IntegerGrid
    fit: Moments | None = None
    held_out: Moments | None = None

    @property
    def steps(self) -> NDArray[np.float64]:
        """The step of each weight, [out, in]."""
        return self.scales[:, self.blocks]


@dataclass(frozen=True, kw_only=True)
class RoundedWeights:
    """What a method chose.

    Attributes:
        integers: [out, in] int32 of the grid.
        scales: [out, blocks], such that weights ~ integers * scales[:, blocks].
        how: a few words on what was done, for the report.
    """

    integers: NDArray[np.int32]
    scales: NDArray[np.float64]
    how: str


class Rounding(Protocol):
    """Turns real weights into integers.

    Attributes:
        needs_inputs: whether the problem has to come with moments of the layer's inputs.
    """

    needs_inputs: ClassVar[bool]

    def round_weights(self, problem: RoundingProblem) -> RoundedWeights:
        """Returns integers of the grid and the scales they belong to."""
        ...
