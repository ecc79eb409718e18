"""How close a vehicle's planned paths come to predicted objects."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from perception.frame.predict import Predictions
from perception.frame.track import Tracks

Array = NDArray[np.float64]

FAR_CLEARANCE_M = 50.0
LARGEST_DOUBT_M = 1.0


@dataclass(frozen=True)
class Obstacles:
    """Moving rectangles on the ground.

    Attributes:
        centres: [N, K, 2] x, z in metres at each planned time.
        headings: [N, K] rad.
        half_sizes: [N, K, 2] half length and half width in metres, doubt included.
    """

    centres: Array
    headings: Array
    half_sizes: Array

    @classmethod
    def from_tracks(
        cls, tracks: Tracks, predictions: Predictions, extents: Array, doubt_factor: float
    ) -> Self:
        """Builds the rectangles of tracked objects.

        What a camera locates is the face it sees, so a rectangle's centre lies behind that by the
        rectangle's reach along the line of sight.

        Args:
            tracks: the objects now.
            predictions: where they will be.
            extents: [C, 2] half length and half width per class, m.
            doubt_factor: standard deviations by which a rectangle grows, at most by 1 m.
        """
        half = extents[tracks.labels]
        sight = tracks.positions / np.maximum(
            np.linalg.norm(tracks.positions, axis=1, keepdims=True), 1e-6
        )
        facing = np.stack([np.sin(tracks.headings), np.cos(tracks.headings)], axis=1)
        cosine = np.abs((facing * sight).sum(axis=1))
        sine = np.sqrt(np.maximum(1 - cosine**2, 0))
        reach = cosine * half[:, 0] + sine * half[:, 1]
        doubt = np.minimum(doubt_factor * _spread_along_sides(predictions), LARGEST_DOUBT_M)
        return cls(
            centres=predictions.positions + (sight * reach[:, None])[:, None],
            headings=predictions.headings,
            half_sizes=half[:, None] + doubt,
        )

    def take(self, count: int) -> Self:
        """Returns the `count` obstacles that come nearest to the origin."""
        if len(self.centres) <= count:
            return self
        nearest = np.square(self.centres).sum(axis=2).min(axis=1)
        chosen = np.argsort(nearest)[:count]
        return type(self)(self.centres[chosen], self.headings[chosen], self.half_sizes[chosen])


def measure_clearance(discs: Array, radius_m: float, obstacles: Obstacles) -> Array:
    """Returns the smallest gap between a vehicle of discs and all obstacles, per path and time.

    Args:
        discs: [M, D, K, 2] x, z of the D discs that cover the vehicle, on M paths at K times.
        radius_m: radius of the discs.
        obstacles: N rectangles at the same K times.

    Returns:
        [M, K] metres; below 0 they touch, 50 where there is no obstacle.
    """
    nearest = np.full(discs.shape[:-1], (FAR_CLEARANCE_M + radius_m) ** 2, np.float32)
    x, z = discs[..., 0].astype(np.float32), discs[..., 1].astype(np.float32)
    for centres, headings, half in zip(
        obstacles.centres, obstacles.headings, obstacles.half_sizes, strict=True
    ):
        sine, cosine = np.sin(headings), np.cos(headings)
        shift_along = centres[:, 0] * sine + centres[:, 1] * cosine
        shift_across = centres[:, 0] * cosine - centres[:, 1] * sine
        along = _outside(x, z, sine, cosine, shift_along, half[:, 0])
        across = _outside(x, z, cosine, -sine, shift_across, half[:, 1])
        np.minimum(nearest, along * along + across * across, out=nearest)
    gaps: Array = np.sqrt(nearest.min(axis=1)) - radius_m
    return gaps


def _spread_along_sides(predictions: Predictions) -> Array:
    """Returns [N, K, 2]: standard deviations along and across each object's heading."""
    sine, cosine = np.sin(predictions.headings), np.cos(predictions.headings)
    xx, zz = predictions.covariances[..., 0, 0], predictions.covariances[..., 1, 1]
    shared = 2 * sine * cosine * predictions.covariances[..., 0, 1]
    along = xx * sine**2 + zz * cosine**2 + shared
    across = xx * cosine**2 + zz * sine**2 - shared
    return np.asarray(np.sqrt(np.maximum(np.stack([along, across], axis=-1), 0)))


def _outside(
    x: NDArray[np.float32],
    z: NDArray[np.float32],
    x_part: Array,
    z_part: Array,
    shift: Array,
    half: Array,
) -> NDArray[np.float32]:
    """Returns how far points lie outside a strip: max(|x x_part + z z_part - shift| - half, 0)."""
    offset = x * x_part.astype(np.float32)
    offset += z * z_part.astype(np.float32)
    offset -= shift.astype(np.float32)
    np.abs(offset, out=offset)
    offset -= half.astype(np.float32)
    return np.asarray(np.maximum(offset, 0, out=offset))
