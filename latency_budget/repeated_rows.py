"""Rows of a recording that hold frames twice: evidence that was never collected."""

import numpy as np

from latency_budget.run import Nanoseconds

_WINDOW_ROWS = 20
_FEWEST_VALUES = 10
_HELD_SHARE = 0.1


def find_repeats(latency_ns: Nanoseconds) -> str:
    """Returns how rows repeat others to the last digit; empty where none do.

    Twenty rows in a row that come back are a file that was joined twice, not chance, unless their
    values are few (times in whole milliseconds). Rows that equal the one before them, though
    hardly a value comes back later, are those of a recorder that is faster than the frames.

    Args:
        latency_ns: [n] of the frames that were processed.
    """
    seen: dict[bytes, int] = {}
    for row in range(len(latency_ns) - _WINDOW_ROWS + 1):
        window = latency_ns[row : row + _WINDOW_ROWS]
        first = seen.setdefault(window.tobytes(), row)
        if row - first >= _WINDOW_ROWS and len(np.unique(window)) >= _FEWEST_VALUES:
            return f"frames {row} to {row + _WINDOW_ROWS - 1} are those from {first} on again"
    held = int((np.diff(latency_ns) == 0).sum())
    values = len(np.unique(latency_ns))
    if (
        values >= _FEWEST_VALUES
        and held > _HELD_SHARE * len(latency_ns)
        and 2 * values > len(latency_ns) - held
    ):
        return f"{held} of {len(latency_ns)} frames took as long as the one before, to the digit"
    return ""
