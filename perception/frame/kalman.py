"""A bank of constant-velocity Kalman filters, one per object and coordinate."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class ConstantVelocityBank:
    """Kalman filters of states (value, rate), advanced together.

    With independent noise per coordinate the filter of a whole object falls apart into one
    filter of two states per coordinate, whose 2 x 2 algebra is written out here: exact, and
    without a matrix inverse in the frame.

    Attributes:
        value: [N, D] estimates.
        rate: [N, D] estimates per second.
        value_variance: [N, D] p00.
        cross_covariance: [N, D] p01.
        rate_variance: [N, D] p11.
    """

    def __init__(self, dimensions: int) -> None:
        empty = np.zeros((0, dimensions))
        self.value: Array = empty
        self.rate: Array = empty
        self.value_variance: Array = empty
        self.cross_covariance: Array = empty
        self.rate_variance: Array = empty

    def add(self, value: Array, value_variance: Array, rate_variance: Array) -> None:
        """Adds objects at rest with the given variances, each [K, D]."""
        self.value = np.concatenate([self.value, value])
        self.rate = np.concatenate([self.rate, np.zeros_like(value)])
        self.value_variance = np.concatenate([self.value_variance, value_variance])
        self.cross_covariance = np.concatenate([self.cross_covariance, np.zeros_like(value)])
        self.rate_variance = np.concatenate([self.rate_variance, rate_variance])

    def keep(self, is_kept: NDArray[np.bool_]) -> None:
        """Forgets the objects whose flag is false."""
        self.value = self.value[is_kept]
        self.rate = self.rate[is_kept]
        self.value_variance = self.value_variance[is_kept]
        self.cross_covariance = self.cross_covariance[is_kept]
        self.rate_variance = self.rate_variance[is_kept]

    def predict(self, dt_s: float, acceleration_sigma: Any, shift: Any = 0.0) -> None:
        """Advances all objects by `dt_s` seconds.

        Args:
            dt_s: time passed, s.
            acceleration_sigma: standard deviation of the unknown acceleration, held constant
                over the step; broadcasts to [N, D].
            shift: known change of the values in this step; broadcasts to [N, D].
        """
        noise = np.square(acceleration_sigma)
        self.value = self.value + self.rate * dt_s + shift
        self.value_variance = (
            self.value_variance
            + 2 * dt_s * self.cross_covariance
            + dt_s**2 * self.rate_variance
            + noise * (dt_s**4 / 4)
        )
        self.cross_covariance = (
            self.cross_covariance + dt_s * self.rate_variance + noise * (dt_s**3 / 2)
        )
        self.rate_variance = self.rate_variance + noise * dt_s**2

    def update(self, rows: NDArray[np.int64], innovation: Array, variance: Array) -> None:
        """Corrects the objects `rows` [K] by measured - predicted value, each [K, D].

        Args:
            rows: objects measured, each at most once.
            innovation: measured value minus estimate (wrap angles before).
            variance: variance of the measurement.
        """
        before, cross = self.value_variance[rows], self.cross_covariance[rows]
        total = before + variance
        value_gain, rate_gain = before / total, cross / total
        self.value[rows] += value_gain * innovation
        self.rate[rows] += rate_gain * innovation
        self.rate_variance[rows] -= rate_gain * cross
        self.cross_covariance[rows] = cross * (1 - value_gain)
        self.value_variance[rows] = before * (1 - value_gain)

    def update_rate(
        self, rows: NDArray[np.int64], dimension: int, innovation: Array, variance: Array
    ) -> None:
        """Corrects one coordinate of the objects `rows` [K] by a measured rate.

        Args:
            rows: objects measured, each at most once.
            dimension: the coordinate whose rate was measured.
            innovation: [K] measured rate minus estimate.
            variance: [K] variance of the measurement.
        """
        cells = (rows, dimension)
        before, cross = self.rate_variance[cells], self.cross_covariance[cells]
        total = before + variance
        value_gain, rate_gain = cross / total, before / total
        self.value[cells] += value_gain * innovation
        self.rate[cells] += rate_gain * innovation
        self.value_variance[cells] -= value_gain * cross
        self.cross_covariance[cells] = cross * (1 - rate_gain)
        self.rate_variance[cells] = before * (1 - rate_gain)
