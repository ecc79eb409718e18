"""The pinhole camera above a flat ground.

Vehicle frame: x to the right, y up, z forward, in metres, origin on the ground below the camera.
Camera frame: x to the right, y down, z along the optical axis, origin in the camera.
"""

from dataclasses import dataclass
from math import cos, sin

import numpy as np
from numpy.typing import NDArray

NEAR_M = 0.4


@dataclass(frozen=True, kw_only=True)
class Camera:
    """A pinhole camera without roll, looking forward and `pitch_rad` downwards.

    Attributes:
        width: picture width in pixels.
        height: picture height in pixels.
        focal_px: focal length in pixels, the same in both directions.
        mount_height_m: height of the camera above the ground.
        pitch_rad: angle of the optical axis below the horizon.
    """

    width: int
    height: int
    focal_px: float
    mount_height_m: float
    pitch_rad: float

    @property
    def horizon_px(self) -> float:
        """Row of the horizon, in pixels."""
        tangent = sin(self.pitch_rad) / cos(self.pitch_rad)
        return (self.height - 1) / 2 - self.focal_px * tangent

    def to_camera(self, points: NDArray) -> NDArray:
        """Moves points [..., 3] from the vehicle frame to the camera frame."""
        c, s = cos(self.pitch_rad), sin(self.pitch_rad)
        turn = np.array([[1.0, 0.0, 0.0], [0.0, -c, -s], [0.0, -s, c]])
        lift = self.mount_height_m
        moved: NDArray = points @ turn.T + np.array([0.0, lift * c, lift * s])
        return moved

    def to_pixels(self, points: NDArray) -> NDArray:
        """Projects points [..., 3] of the camera frame (z > 0) to pixels [..., 2] (u, v)."""
        centre = np.array([(self.width - 1) / 2, (self.height - 1) / 2])
        pixels: NDArray = points[..., :2] * (self.focal_px / points[..., 2:]) + centre
        return pixels

    def ground_rows(self, farthest_m: float = 2000.0) -> tuple[int, NDArray, NDArray]:
        """Intersects the rays of all rows below the horizon with the ground.

        Args:
            farthest_m: rows whose depth is beyond are left to the sky.

        Returns:
            The first row that sees the ground (`height` if none does), and for it and all rows
            below [R] the depth along the optical axis and the distance forward, both in metres.
        """
        slope = (np.arange(self.height) - (self.height - 1) / 2) / self.focal_px
        c, s = cos(self.pitch_rad), sin(self.pitch_rad)
        down = s + c * slope
        sees_ground = down > self.mount_height_m / farthest_m
        first = int(np.argmax(sees_ground)) if sees_ground.any() else self.height
        depth = self.mount_height_m / down[first:]
        return first, depth, depth * (c - s * slope[first:])


def clip_near(points: NDArray) -> NDArray:
    """Cuts a convex polygon [K, 3] of the camera frame at the plane z = NEAR_M."""
    inside = points[:, 2] >= NEAR_M
    if inside.all():
        return points
    kept: list[NDArray] = []
    for i, point in enumerate(points):
        previous = points[i - 1]
        if inside[i] != inside[i - 1]:
            part = (NEAR_M - previous[2]) / (point[2] - previous[2])
            kept.append(previous + part * (point - previous))
        if inside[i]:
            kept.append(point)
    return np.array(kept).reshape(-1, 3)
