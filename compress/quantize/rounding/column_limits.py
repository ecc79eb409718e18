"""Limits of integers, column by column of a weight matrix that is turned to [groups, in, rows]."""

import numpy as np
from numpy.typing import NDArray

from compress.quantize.qparams import Limit


def turn_limit(limit: Limit, order: NDArray[np.int64] | None = None) -> Limit:
    """Returns a limit [groups, rows, in] as [groups, in, rows]; one for all as it is.

    Args:
        limit: of `IntegerGrid.limits`.
        order: [groups, in, 1] the columns in another order.
    """
    if isinstance(limit, int):
        return limit
    turned = limit.transpose(0, 2, 1)
    return np.ascontiguousarray(
        turned if order is None else np.take_along_axis(turned, order, axis=1)
    )


def pick_column(limit: Limit, column: int) -> Limit:
    """Returns a turned limit's [groups, rows] of one column."""
    return limit if isinstance(limit, int) else limit[:, column]
