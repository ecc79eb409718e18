"""How far two answers of a network are apart, as the proof of a pruned one takes it."""

import torch
from torch import Tensor

LEAST_FILL = 1e4
"""Values that stand for "masked" are this large or larger: -1e4, -1e9, the least float32."""
FILL_GAP = 1e3
"""So many times as large as the largest of the values that are computed."""
_ROUNDING = 1e-6
"""Smaller values may be what rounding leaves of zero."""


def largest_difference(found: Tensor, wanted: Tensor) -> float:
    """Returns the largest difference of two tensors of one shape, as a share of the largest value.

    Values that stand for "masked" (-1e9) are set apart: beside them any difference of the others
    would be little. They are compared with themselves. Equal infinities are equal.

    Returns:
        the share; 0 or 1 for integers, NaN where one of the two is NaN, of which
        nothing can be said.
    """
    is_same = found == wanted
    if not wanted.is_floating_point():
        return float(not is_same.all())
    if is_same.all():
        return 0.0
    signal = wanted.abs()
    largest = _largest_computed(signal)
    scale = torch.where(signal > largest, signal, largest)
    shares = (found - wanted).abs()[~is_same] / scale[~is_same]
    return float(shares.max())


def _largest_computed(signal: Tensor) -> float:
    """Returns the largest of absolute values that stands for nothing but itself; 1 if all are 0."""
    values = signal[signal.isfinite() & (signal > 0)]
    if not values.numel():
        return 1.0
    if float(values.max()) < LEAST_FILL:
        return float(values.max())
    ordered = values.sort().values
    below, above = ordered[:-1], ordered[1:]
    is_gap = (above >= LEAST_FILL) & (above >= FILL_GAP * below) & (below >= _ROUNDING)
    return float(below[is_gap][0]) if is_gap.any() else float(ordered[-1])
