"""Room for values that calibration was too short to show.

The largest of few values is no bound for many: a policy's input of 24 numbers, a pooled feature, or
the logits of a head gives some hundred values on all calibration samples together, and each frame
of the field brings new ones. Tensors that pictures fill have shown their extremes after one.

The tail beyond a high quantile is taken to fall like a normal distribution's, whose extremes grow
by about half the mean excess over the quantile for each time that the values are e times as many.
Where many values lie at the extreme (a clamp, a mask), there is no excess, and nothing grows.
"""

import math

import numpy as np
from numpy.typing import NDArray

from compress.quantize.observers.contract import BINS, ObservedTensor

ENOUGH_VALUES = 30_000
"""So many have shown how far a tensor reaches."""
TAIL = 0.1
"""The share of the values on one side of 0 that counts as its tail."""
GROWTH = 0.5
MOST_GROWTH = 0.5
"""Relative to the range."""


def reach_unseen(tensor: ObservedTensor, ends: tuple[float, float]) -> tuple[float, float]:
    """Widens a range by what more values would show; not at all where there were enough.

    Args:
        tensor: what was seen.
        ends: the range that an observer chose.
    """
    seen = int(tensor.counts.sum())
    if not 0 < seen < ENOUGH_VALUES:
        return ends
    centres, counts = tensor.occupied
    more = GROWTH * math.log(ENOUGH_VALUES / seen)
    zeros = np.abs(centres) < (tensor.high - tensor.low) / BINS
    counts = np.where(zeros, 0.0, counts)
    low, high = (
        end + sign * min(more * _excess(sign * centres, counts), MOST_GROWTH * abs(end))
        for sign, end in ((-1, ends[0]), (1, ends[1]))
    )
    return low, high


def _excess(centres: NDArray[np.float64], counts: NDArray[np.float64]) -> float:
    """Returns how far the positive values in the tail lie beyond where it begins, on average.

    Zeros, of which a ReLU makes many, do not count.
    """
    order = np.argsort(centres)
    values, weights = centres[order], counts[order] * (centres[order] > 0)
    if not weights.sum():
        return 0.0
    begin = values[np.searchsorted(np.cumsum(weights), (1 - TAIL) * weights.sum())]
    beyond = weights * (values > begin)
    return float(beyond @ (values - begin) / beyond.sum()) if beyond.sum() else 0.0
