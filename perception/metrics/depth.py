"""Errors of a depth map (Eigen et al., 2014)."""

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InconclusiveError, InputError

FURTHEST_M = 80.0
CLOSE_RATIO = 1.25


class DepthError:
    """Collects errors over all pixels whose true depth is between 0 and 80 m."""

    def __init__(self) -> None:
        self._count = 0
        self._relative = 0.0
        self._close = 0

    def update(self, depth: NDArray[np.float32], true_depth: NDArray[np.float32]) -> None:
        """Adds one picture.

        Args:
            depth: [H, W] predicted metres, above 0.
            true_depth: [H, W] metres; inf (sky), NaN and 0 are left out.

        Raises:
            InputError: the sizes differ.
        """
        if depth.shape != true_depth.shape:
            raise InputError(f"depths of {depth.shape} and {true_depth.shape}", "equal sizes")
        with np.errstate(invalid="ignore"):
            known = (true_depth > 0) & (true_depth < FURTHEST_M)
        predicted, true = depth[known].astype(np.float64), true_depth[known].astype(np.float64)
        self._count += true.size
        self._relative += float((np.abs(predicted - true) / true).sum())
        ratio = np.maximum(predicted / true, true / np.maximum(predicted, 1e-9))
        self._close += int((ratio < CLOSE_RATIO).sum())

    def compute(self) -> dict[str, float]:
        """Returns `abs_rel`, the mean of |depth - true| / true, and `delta1`.

        `delta1` is the share of pixels that are off by a factor below 1.25.

        Raises:
            InconclusiveError: no pixel had a known depth.
        """
        if not self._count:
            raise InconclusiveError(
                "depth error of no known pixel", f"true depths from 0 to {FURTHEST_M:g} m"
            )
        return {"abs_rel": self._relative / self._count, "delta1": self._close / self._count}
