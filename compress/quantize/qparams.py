"""Integer grids and the parameters that map real numbers onto them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Limit = int | NDArray[np.float64]
SMALLEST_SCALE = float(np.finfo(np.float32).tiny) * 2**10


@dataclass(frozen=True, kw_only=True)
class IntegerGrid:
    """The integers a tensor may take.

    Attributes:
        bits: 4, 7, 8 or 16.
        is_signed: int rather than uint.
        is_narrow: leaves out the lowest value, so that the grid is symmetric about 0 (weights).
        is_paired: weights whose products are added in pairs have sums that fit (`paired_grid`).
    """

    bits: int = 8
    is_signed: bool = True
    is_narrow: bool = False
    is_paired: bool = False

    @property
    def lowest(self) -> int:
        """The smallest integer."""
        return -(1 << (self.bits - 1)) + int(self.is_narrow) if self.is_signed else 0

    @property
    def highest(self) -> int:
        """The largest integer."""
        return (1 << (self.bits - 1)) - 1 if self.is_signed else (1 << self.bits) - 1

    @property
    def dtype(self) -> np.dtype:
        """The numpy type that stores it (4 and 7 bits are stored in 8)."""
        stored = max(self.bits, 8)
        return np.dtype(f"{'int' if self.is_signed else 'uint'}{stored}")

    def limits(
        self, values: NDArray[np.float64], steps: NDArray[np.float64] | float = 1.0
    ) -> tuple[Limit, Limit]:
        """Returns the smallest and the largest integer that a value may become.

        Args:
            values: [..., in].
            steps: of their scales.
        """
        return self.lowest, self.highest

    def reach(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the scale of each row, [channels], with which none of its values is clipped."""
        return np.asarray(np.maximum(rows.max(axis=1), -rows.min(axis=1)) / self.highest)


WEIGHT_GRID = IntegerGrid(bits=8, is_signed=True, is_narrow=True)
WEIGHT_GRIDS = {
    "int8": WEIGHT_GRID,
    "int7": IntegerGrid(bits=7, is_signed=True, is_narrow=True),
    "int8-pairs": IntegerGrid(bits=8, is_signed=True, is_narrow=True, is_paired=True),
    "int4": IntegerGrid(bits=4, is_signed=True),
}
"""INT7 and pairs are for processors that add two products in 16 bits: 2 * 255 * 63 fits into them,
and so does what two weights get that are 128 together."""


@dataclass(frozen=True)
class WeightGrids:
    """The integers of weights, layer by layer.

    Attributes:
        common: of most layers.
        in_int8: names of the layers that have INT8 instead.
        int8: their integers.
    """

    common: IntegerGrid = WEIGHT_GRID
    in_int8: frozenset[str] = frozenset()
    int8: IntegerGrid = WEIGHT_GRID

    def of(self, layer: str) -> IntegerGrid:
        """Returns the integers of a layer."""
        return self.int8 if layer in self.in_int8 else self.common


INT8_WEIGHTS = WeightGrids()


@dataclass(frozen=True, kw_only=True)
class QParams:
    """A per-tensor scale and zero_point: real = (integer - zero_point) * scale.

    Attributes:
        scale: the step between neighbouring integers, above 0.
        zero_point: the integer that stands for 0.0.
        grid: the integers that are allowed.
    """

    scale: float
    zero_point: int
    grid: IntegerGrid

    @property
    def low(self) -> float:
        """The smallest real number that is represented."""
        return (self.grid.lowest - self.zero_point) * self.scale

    @property
    def high(self) -> float:
        """The largest real number that is represented."""
        return (self.grid.highest - self.zero_point) * self.scale


def qparams_for_range(low: float, high: float, grid: IntegerGrid, *, symmetric: bool) -> QParams:
    """Returns the parameters that cover [low, high] and represent 0.0 exactly.

    Args:
        low: the smallest value to represent.
        high: the largest value to represent.
        grid: the integers that are allowed.
        symmetric: with a zero_point in the middle of the grid (0 for signed ones); for an unsigned
            grid and values that are never negative, 0 as well.
    """
    lows, highs = np.array([[low], [high]], np.float64)
    scales, zero_points = scales_for_ranges(lows, highs, grid, symmetric=symmetric)
    return QParams(scale=float(scales[0]), zero_point=int(zero_points[0]), grid=grid)


def scales_for_ranges(
    lows: NDArray[np.float64], highs: NDArray[np.float64], grid: IntegerGrid, *, symmetric: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns scales and zero points of ranges, as `qparams_for_range` has them for one.

    Scales are rounded to float32, as they are stored; a tensor that is always 0 gets 1.

    Args:
        lows: [ranges].
        highs: [ranges].
        grid: the integers that are allowed.
        symmetric: see there.
    """
    lows, highs = np.minimum(lows, 0.0), np.maximum(highs, 0.0)
    is_at_zero = symmetric & (grid.is_signed | (lows == 0.0))
    about_zero = np.maximum(highs / grid.highest, lows / grid.lowest if grid.lowest else 0.0)
    if symmetric:
        lows, highs = np.minimum(lows, -highs), np.maximum(highs, -lows)
    widths = (highs - lows) / (grid.highest - grid.lowest)
    exact = np.where(is_at_zero, about_zero, widths)
    scales = np.where(exact > SMALLEST_SCALE, exact.astype(np.float32), 1.0)
    points = np.clip(np.rint(grid.lowest - lows / scales), grid.lowest, grid.highest)
    return scales, np.where(is_at_zero, 0.0, points)


def fake_quantize(values: NDArray, qparams: QParams) -> NDArray[np.float32]:
    """Rounds values onto the grid and back, halves to even as ONNX QuantizeLinear does."""
    scale = np.float32(qparams.scale)
    integers = np.rint(values.astype(np.float32, copy=False) / scale) + np.float32(
        qparams.zero_point
    )
    np.clip(integers, qparams.grid.lowest, qparams.grid.highest, out=integers)
    return np.asarray((integers - np.float32(qparams.zero_point)) * scale, np.float32)


def round_to_grid(values: NDArray[np.float64], grid: IntegerGrid) -> NDArray[np.float64]:
    """Returns the nearest value of the grid, halves to even; [..., in] where the grid is paired."""
    return np.clip(np.rint(values), *grid.limits(values))
