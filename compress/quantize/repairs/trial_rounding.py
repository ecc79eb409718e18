"""Rounds activations and weights as the quantized network will: what repairs are tried on."""

import numpy as np
from numpy.typing import NDArray

from compress.quantize.layer_weights import ChooseScales, from_rows, to_rows
from compress.quantize.observers import MeanSquaredError, ObservedTensor
from compress.quantize.placement import Placement
from compress.quantize.qparams import IntegerGrid, fake_quantize, qparams_for_range, round_to_grid


def round_activation(values: NDArray[np.float32], placement: Placement) -> NDArray[np.float32]:
    """Returns values rounded on the grid that a placement gives them, of the same shape."""
    observed = ObservedTensor.of([values])
    grid, symmetric = placement.activation_grid(observed.low), placement.symmetric
    ends = MeanSquaredError(reaches_unseen=False).choose_range(observed, grid, symmetric=symmetric)
    return fake_quantize(values, qparams_for_range(*ends, grid, symmetric=symmetric))


def round_weight(
    weight: NDArray,
    axis: int,
    grid: IntegerGrid,
    choose_scales: ChooseScales,
) -> NDArray[np.float64]:
    """Returns a weight rounded with one scale per index of `axis`, of the same shape.

    Args:
        weight: of any shape.
        axis: its output channels'.
        grid: the integers that are allowed.
        choose_scales: finds the scale of each row, `choose_row_scales` or `widest_scales`.
    """
    rows = to_rows(weight, axis)
    steps = choose_scales(rows, grid)[:, None]
    return np.asarray(from_rows(round_to_grid(rows / steps, grid) * steps, weight.shape, axis))
