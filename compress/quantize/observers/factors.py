"""The factors on a tensor's range that observers search."""

from collections.abc import Callable

import numpy as np

FACTORS = np.concatenate([np.geomspace(0.02, 0.4, 20, endpoint=False), np.linspace(0.4, 1.0, 61)])


def choose_factor(loss: Callable[[float], float]) -> float:
    """Returns the factor with the least loss; the largest of several."""
    losses = [loss(float(factor)) for factor in FACTORS[::-1]]
    return float(FACTORS[len(FACTORS) - 1 - int(np.argmin(losses))])
