"""Whether two versions of a network give the same outputs, within a named tolerance."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be from its reference.

    Attributes:
        relative: allowed error as a share of the reference's largest magnitude.
        absolute: allowed error besides, for outputs near 0.
    """

    relative: float
    absolute: float

    def limit(self, reference: NDArray[Any]) -> float:
        """Returns the largest error that passes for this reference."""
        peak = float(np.abs(reference.astype(np.float64)).max(initial=0.0))
        return self.absolute + self.relative * peak


TOLERANCES: dict[str, Tolerance] = {
    "float64": Tolerance(1e-6, 1e-9),
    "float32": Tolerance(2e-4, 1e-6),
    "float16": Tolerance(2e-2, 1e-3),
    "bfloat16": Tolerance(8e-2, 1e-2),
}
"""Per computing dtype: rounding of a hundred layers passes, a changed weight does not."""

EXACT = Tolerance(0.0, 0.0)


def measure_sqnr_db(reference: NDArray[Any], candidate: NDArray[Any]) -> float:
    """Returns the signal-to-quantization-noise ratio in decibels.

    SQNR = 10 log10(sum r^2 / sum (r - c)^2); infinite where both are equal.
    """
    signal = reference.astype(np.float64)
    noise = float(np.square(signal - candidate.astype(np.float64)).sum())
    power = float(np.square(signal).sum())
    if noise == 0:
        return float("inf")
    return 10 * float(np.log10(power / noise)) if power > 0 else float("-inf")


def check_parity(
    reference: Mapping[str, NDArray[Any]],
    candidate: Mapping[str, NDArray[Any]],
    *,
    dtype: str,
    what: str,
    allow_more: Callable[[], Mapping[str, float]] = dict,
) -> dict[str, float]:
    """Compares outputs by name.

    Args:
        reference: the outputs to meet.
        candidate: the outputs to judge.
        dtype: the computing dtype, a key of `TOLERANCES`; integer outputs must be equal.
        what: what is judged, for the error.
        allow_more: returns the further absolute error that outputs may have, by name; it is asked
            where an output is further off than the tolerance.

    Returns:
        the largest absolute error of each output.

    Raises:
        InputError: an output is missing, has another shape or dtype, is not finite where the
            reference is, or is further off than the tolerance.
    """
    if list(reference) != list(candidate):
        raise InputError(f"{what} has the outputs {list(candidate)}", f"{list(reference)}")
    errors = {}
    for name, wanted in reference.items():
        got = candidate[name]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            raise InputError(
                f"{what}: output '{name}' is {got.dtype} {list(got.shape)}",
                f"{wanted.dtype} {list(wanted.shape)}",
            )
        tolerance = TOLERANCES[dtype] if wanted.dtype.kind == "f" else EXACT
        errors[name] = _measure_error(wanted, got)
        limit = tolerance.limit(wanted[np.isfinite(wanted)])
        if not errors[name] <= limit:
            limit += allow_more().get(name, 0.0)
        if not errors[name] <= limit:
            raise InputError(
                f"{what}: output '{name}' is off by {errors[name]:.3g}",
                f"at most {limit:.3g} ({dtype})",
            )
    return errors


def _measure_error(wanted: NDArray[Any], got: NDArray[Any]) -> float:
    """Returns the largest error; infinite where only one of both is finite."""
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    difference = wanted[finite].astype(np.float64) - got[finite].astype(np.float64)
    return float(np.abs(difference).max(initial=0.0))
