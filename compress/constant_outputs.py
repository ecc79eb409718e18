"""Outputs that no sample changes, of which a comparison on those samples says nothing."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from compress.sqnr import EXACT_DB, format_db


def describe_constant(values: Iterable[NDArray]) -> str | None:
    """Returns how a tensor is constant over samples; None where they change it.

    Args:
        values: one array per sample, at least one.
    """
    rest = iter(values)
    first, count = next(rest), 1
    for value in rest:
        count += 1
        if not np.array_equal(first, value):
            return None
    if first.size == 0:
        return "empty"
    if first.size + count > 2 and np.all(first == first.flat[0]):
        return f"{first.flat[0]:g} everywhere"
    return "the same in all samples" if count > 1 else None


def format_sqnr(figures: Mapping[str, float]) -> str:
    """Returns an output's SQNR as it is shown; "constant" where nothing was there to lose.

    Args:
        figures: see `compress.compare.OutputComparison.result`.
    """
    is_exact = figures["sqnr_db"] >= EXACT_DB
    return "constant" if is_exact and "is_constant" in figures else format_db(figures["sqnr_db"])


def warn_of_constant(output: str, how: str, samples: str) -> str:
    """Returns what has to be said of an output that no sample changes.

    Args:
        output: its name, and of which network.
        how: see `describe_constant`.
        samples: which they are, "calibration" or "held-out".
    """
    return (
        f"{output} is {how} on the {samples} samples: nothing can be said of its quality; give "
        "samples of the field, prepared as in training"
    )
