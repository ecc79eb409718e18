"""A layer's weights as a matrix with one row per output channel, and their scales."""

import numpy as np
from numpy.typing import NDArray

from compress.quantize.qparams import SMALLEST_SCALE, IntegerGrid

CLIP_FACTORS = np.linspace(0.5, 1.0, 26)


def to_rows(weight: NDArray, axis: int) -> NDArray[np.float64]:
    """Returns the weight as [channels, rest], with `axis` in front."""
    return np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1).astype(np.float64)


def from_rows(rows: NDArray, shape: tuple[int, ...], axis: int) -> NDArray:
    """Undoes `to_rows`: [channels, rest] back to a weight of `shape`."""
    front = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(rows.reshape(front), 0, axis))


def choose_row_scales(rows: NDArray[np.float64], grid: IntegerGrid) -> NDArray[np.float64]:
    """Returns the scale of each row, [channels], with the least squared rounding error.

    A row of zeros gets the scale 1. Searched over 26 factors on the row's largest value; scales
    are rounded to float32, as they are stored.
    """
    peaks = np.abs(rows).max(axis=1)
    widest = np.where(peaks / grid.highest > SMALLEST_SCALE, peaks / grid.highest, 1.0)
    best = widest.astype(np.float32).astype(np.float64)
    best_error = np.full(len(rows), np.inf)
    for factor in CLIP_FACTORS[::-1]:
        scales = (widest * factor).astype(np.float32).astype(np.float64)
        integers = np.clip(np.rint(rows / scales[:, None]), grid.lowest, grid.highest)
        error = np.square(integers * scales[:, None] - rows).sum(axis=1)
        is_better = error < best_error
        best = np.where(is_better, scales, best)
        best_error = np.where(is_better, error, best_error)
    return np.where(peaks / grid.highest > SMALLEST_SCALE, best, 1.0)
