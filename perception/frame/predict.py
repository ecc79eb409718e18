"""Predicts where tracked objects will be: constant turn rate and velocity on the ground."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from perception.frame.track import Tracks

Array = NDArray[np.float64]

SMALL_ANGLE = 1e-3
SLOWEST_TURNING_MPS = 1.0


@dataclass(frozen=True, kw_only=True)
class PredictionSettings:
    """How far ahead and with which doubt motion is predicted.

    Attributes:
        horizon_s: time predicted.
        step_s: time between predicted places.
        heading_sigma: standard deviation of the heading now, rad.
        yaw_rate_sigma: standard deviation of the yaw rate, rad/s.
        acceleration_sigma: standard deviation of an unknown steady acceleration, m/s^2.
    """

    horizon_s: float = 3.0
    step_s: float = 0.2
    heading_sigma: float = 0.05
    yaw_rate_sigma: float = 0.08
    acceleration_sigma: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.step_s <= self.horizon_s:
            raise InputError(
                f"step_s {self.step_s} and horizon_s {self.horizon_s}",
                "0 < step_s <= horizon_s",
            )

    @property
    def times_s(self) -> Array:
        """The predicted times [K], seconds from now."""
        steps = round(self.horizon_s / self.step_s)
        return np.asarray(np.arange(1, steps + 1) * self.step_s, np.float64)


@dataclass(frozen=True)
class Predictions:
    """Where each object will be.

    Attributes:
        times_s: [K] seconds from now.
        positions: [N, K, 2] x, z in metres over the ground, origin below the camera now.
        headings: [N, K] rad where each object faces; 0 forward, positive to the right.
        covariances: [N, K, 2, 2] of x, z in m^2.
    """

    times_s: Array
    positions: Array
    headings: Array
    covariances: Array


def predict_tracks(tracks: Tracks, settings: PredictionSettings | None = None) -> Predictions:
    """Predicts all tracks over the horizon.

    A slow object's course and turn rate mean little: it goes straight on, and faces as before.

    Args:
        tracks: the objects of this frame.
        settings: how far ahead and with which doubt.
    """
    settings = settings or PredictionSettings()
    speeds = np.hypot(tracks.velocities[:, 0], tracks.velocities[:, 1])
    is_slow = speeds < SLOWEST_TURNING_MPS
    course = np.arctan2(tracks.velocities[:, 0], tracks.velocities[:, 1])
    headings = np.where(is_slow, course, tracks.headings)
    yaw_rates = np.where(is_slow, 0.0, tracks.yaw_rates)
    times = settings.times_s
    moves = advance(speeds, headings, yaw_rates, times)
    covariances = _spread(tracks, speeds, headings, yaw_rates, times, settings)
    return Predictions(
        times_s=times,
        positions=tracks.positions[:, None] + moves,
        headings=tracks.headings[:, None] + yaw_rates[:, None] * times,
        covariances=covariances,
    )


def advance(speeds: Array, headings: Array, yaw_rates: Array, times_s: Array) -> Array:
    """Returns how far objects come on circles, at constant speed v and turn rate w.

    The chord of the arc has the length v t sin(u)/u with u = w t / 2 and points along the heading
    plus u. Written so, the straight line is the ordinary value at w = 0 and not a special case.

    Args:
        speeds: [N] m/s.
        headings: [N] rad, 0 forward, positive to the right.
        yaw_rates: [N] rad/s.
        times_s: [K] s.

    Returns:
        [N, K, 2] change of x, z in metres.
    """
    half_turn = yaw_rates[:, None] * times_s / 2
    chord = speeds[:, None] * times_s * np.sinc(half_turn / np.pi)
    direction = headings[:, None] + half_turn
    return np.stack([chord * np.sin(direction), chord * np.cos(direction)], axis=-1)


def _spread(
    tracks: Tracks,
    speeds: Array,
    headings: Array,
    yaw_rates: Array,
    times: Array,
    settings: PredictionSettings,
) -> Array:
    """Returns [N, K, 2, 2]: the states' covariance carried forward by the Jacobian of `advance`."""
    u = yaw_rates[:, None] * times / 2
    reach = times * np.sinc(u / np.pi)
    along = np.stack([np.sin(headings[:, None] + u), np.cos(headings[:, None] + u)], axis=-1)
    across = np.stack([along[..., 1], -along[..., 0]], axis=-1)
    travel = speeds[:, None] * times
    chord = speeds[:, None] * reach
    by_speed = reach * tracks.velocity_sigmas[:, None]
    by_acceleration = 0.5 * times**2 * settings.acceleration_sigma * np.sinc(u / np.pi)
    by_heading = chord * settings.heading_sigma
    turn_across = chord * (times / 2) * settings.yaw_rate_sigma
    turn_along = travel * (times / 2) * _sinc_slope(u) * settings.yaw_rate_sigma
    turn = turn_across[..., None] * across + turn_along[..., None] * along
    sideways = np.square(by_heading)
    forward = np.square(by_speed) + np.square(by_acceleration)
    start = np.square(tracks.position_sigmas)[:, None, :, None] * np.eye(2)
    return np.asarray(
        start
        + forward[..., None, None] * _outer(along)
        + sideways[..., None, None] * _outer(across)
        + _outer(turn)
    )


def _outer(vectors: Array) -> Array:
    return np.asarray(vectors[..., :, None] * vectors[..., None, :])


def _sinc_slope(u: Array) -> Array:
    """Returns the derivative of sin(u)/u, which is (u cos u - sin u)/u^2, and -u/3 near 0."""
    is_small = np.abs(u) < SMALL_ANGLE
    safe = np.where(is_small, 1.0, u)
    exact = (safe * np.cos(safe) - np.sin(safe)) / np.square(safe)
    return np.where(is_small, -u / 3, exact)
