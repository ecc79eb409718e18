"""The factors on a tensor's range that observers search."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FACTORS = np.concatenate([np.geomspace(0.02, 0.4, 20, endpoint=False), np.linspace(0.4, 1.0, 61)])


def choose_factor(losses: Callable[[list[float]], NDArray[np.float64]]) -> float:
    """Returns the factor with the least loss; the largest of several.

    Args:
        losses: returns the loss of each factor.
    """
    tried = [float(factor) for factor in FACTORS[::-1]]
    return tried[int(np.argmin(losses(tried)))]
