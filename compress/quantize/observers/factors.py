"""The factors on a tensor's range that observers search."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FACTORS = np.concatenate([np.geomspace(0.02, 0.4, 20, endpoint=False), np.linspace(0.4, 1.0, 61)])


TRIED_AT_ONCE = 12


def choose_factor(
    losses: Callable[[list[float]], NDArray[np.float64]],
    least: Callable[[float], float] | None = None,
) -> float:
    """Returns the factor with the least loss; the largest of several.

    Args:
        losses: returns the loss of each factor.
        least: returns what every smaller factor loses at least; None where that is not known. The
            search ends where it is more than has been found.
    """
    tried = [float(factor) for factor in FACTORS[::-1]]
    found: list[float] = []
    for start in range(0, len(tried), TRIED_AT_ONCE):
        chunk = tried[start : start + TRIED_AT_ONCE]
        found += losses(chunk).tolist()
        if least is not None and least(chunk[-1]) > min(found):
            break
    return tried[int(np.argmin(found))]
