"""Rows of a recording that hold frames twice: evidence that was never collected."""

import numpy as np

from latency_budget.run import Nanoseconds

_WINDOW_ROWS = 20
_FEWEST_VALUES = 10
_HELD_SHARE = 0.1
_MULTIPLIER = np.uint64(6364136223846793005)
"""Of a window's number, modulo 2^64: D. E. Knuth's, for linear congruential generators."""


def find_repeats(latency_ns: Nanoseconds) -> str:
    """Returns how rows repeat others to the last digit; empty where none do.

    Twenty rows in a row that come back are a file that was joined twice, not chance, unless their
    values are few (times in whole milliseconds). Rows that equal the one before them, though
    hardly a value comes back later, are those of a recorder that is faster than the frames.

    Args:
        latency_ns: [n] of the frames that were processed.
    """
    values = int((np.diff(np.sort(latency_ns)) > 0).sum()) + 1  # Sooner told than by np.unique.
    if values < _FEWEST_VALUES:
        return ""
    row, first = _find_return(latency_ns)
    if row:
        return f"frames {row} to {row + _WINDOW_ROWS - 1} are those from {first} on again"
    held = int((np.diff(latency_ns) == 0).sum())
    if held > _HELD_SHARE * len(latency_ns) and 2 * values > len(latency_ns) - held:
        return f"{held} of {len(latency_ns)} frames took as long as the one before, to the digit"
    return ""


def _find_return(latency_ns: Nanoseconds) -> tuple[int, int]:
    """Returns the first row from which on a window comes back, and where it was; zeros for none.

    Windows are compared by a number each, and those alike by their rows.
    """
    count = len(latency_ns) - _WINDOW_ROWS + 1
    if count <= _WINDOW_ROWS:
        return 0, 0
    keys = np.zeros(count, np.uint64)
    for shift in range(_WINDOW_ROWS):
        keys *= _MULTIPLIER
        keys += latency_ns[shift : shift + count].astype(np.uint64)
    _, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
    first = firsts[which]
    for row in np.flatnonzero(np.arange(count) - first >= _WINDOW_ROWS):
        window, before = (latency_ns[at : at + _WINDOW_ROWS] for at in (row, first[row]))
        if len(np.unique(window)) >= _FEWEST_VALUES and (window == before).all():
            return int(row), int(first[row])
    return 0, 0
