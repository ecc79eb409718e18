"""Some values of a tensor, spread over all its channels, rows and columns.

Every third of 96 channels would be the same third in each row: of networks whose few loud channels
are among the others, ranges would be chosen without them. So where the step by which values are
picked has a factor in common with the tensor's size, the tensor, laid out flat, is cut into equal
parts, and each gives the value at another place in it.
"""

from math import gcd

import numpy as np
from numpy.typing import NDArray

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, without what is before the point, lie evenly between 0 and 1, in no period."""


def spread_places(size: int, most: int) -> slice | NDArray[np.int64]:
    """Returns the places of at most `most` of `size` values in a row, in order."""
    length = -(-size // most)
    if length <= 1:
        return slice(None)
    step = length | 1
    if gcd(step, size) == 1:
        return slice(None, None, step)
    parts = np.arange(-(-size // length))
    within = (length * (parts * GOLDEN % 1)).astype(np.int64)
    return np.asarray(np.minimum(parts * length + within, size - 1))
