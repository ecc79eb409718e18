"""Rounds an activation as the quantized network will: what repairs try their factors on."""

import numpy as np
from numpy.typing import NDArray

from compress.quantize.observers import MeanSquaredError, ObservedTensor
from compress.quantize.placement import Placement
from compress.quantize.qparams import fake_quantize, qparams_for_range


def round_activation(values: NDArray[np.float32], placement: Placement) -> NDArray[np.float32]:
    """Returns values rounded on the grid that a placement gives them, of the same shape."""
    observed = ObservedTensor.of([values])
    grid, symmetric = placement.activation_grid(observed.low), placement.symmetric
    ends = MeanSquaredError().choose_range(observed, grid, symmetric=symmetric)
    return fake_quantize(values, qparams_for_range(*ends, grid, symmetric=symmetric))
