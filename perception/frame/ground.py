"""Between the picture and the flat ground in front of the camera.

Ground frame: x to the right, z forward, in metres, origin below the camera. Pixels are those of
the camera's picture, where they are square, and not those of the network's input.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, sin
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perception.scene.camera import Camera

NEAREST_M = 0.5
FARTHEST_M = 120.0
SMALLEST_SLOPE = 1e-3


@dataclass(frozen=True, kw_only=True)
class RoadUser:
    """What is known of a kind of road user before it is measured.

    Attributes:
        half_length_m: half its length.
        half_width_m: half its width.
        velocity_sigma_mps: standard deviation of its velocity, sideways and forward.
    """

    half_length_m: float
    half_width_m: float
    velocity_sigma_mps: tuple[float, float]


ROAD_USERS = {
    "car": RoadUser(half_length_m=2.2, half_width_m=0.95, velocity_sigma_mps=(2.0, 9.0)),
    "truck": RoadUser(half_length_m=4.0, half_width_m=1.25, velocity_sigma_mps=(2.0, 9.0)),
    "pedestrian": RoadUser(half_length_m=0.3, half_width_m=0.3, velocity_sigma_mps=(1.5, 1.5)),
}
UNKNOWN_ROAD_USER = ROAD_USERS["car"]


def default_camera(height: int, width: int) -> Camera:
    """Returns a forward camera of 57 degrees, 1.55 m high, 2.6 degrees downwards.

    Args:
        height: height of its pictures in pixels.
        width: their width in pixels.
    """
    return Camera(
        width=width,
        height=height,
        focal_px=0.91 * width,
        mount_height_m=1.55,
        pitch_rad=0.045,
    )


def extents_of(classes: Sequence[str]) -> NDArray[np.float64]:
    """Returns [C, 2] half length and half width of each class, a car's for an unknown one."""
    known = [ROAD_USERS.get(name, UNKNOWN_ROAD_USER) for name in classes]
    return np.asarray([[u.half_length_m, u.half_width_m] for u in known]).reshape(-1, 2)


def velocity_sigmas_of(classes: Sequence[str]) -> NDArray[np.float64]:
    """Returns [C, 2] spread of each class's velocity in m/s, sideways and forward."""
    known = [ROAD_USERS.get(name, UNKNOWN_ROAD_USER) for name in classes]
    return np.asarray([u.velocity_sigma_mps for u in known]).reshape(-1, 2)


def locate_boxes(
    boxes: NDArray[Any],
    camera: Camera,
    depth: NDArray[np.float32] | None = None,
) -> NDArray[np.float64]:
    """Finds where the visible faces of objects stand on the ground.

    With a depth map, the distance is the median depth of the box's middle; without, that of the
    ground at the box's lower edge.

    Args:
        boxes: [N, 4] x1, y1, x2, y2 in pixels of the camera's picture.
        camera: the camera.
        depth: [h, w] metres along the optical axis, any resolution, finite; None without one.

    Returns:
        [N, 2] x, z in metres.
    """
    corners = np.asarray(boxes, np.float64).reshape(-1, 4)
    c, s = cos(camera.pitch_rad), sin(camera.pitch_rad)
    centre_u, centre_v = (camera.width - 1) / 2, (camera.height - 1) / 2
    if depth is None:
        slope = (corners[:, 3] - centre_v) / camera.focal_px
        along = camera.mount_height_m / np.maximum(s + c * slope, SMALLEST_SLOPE)
    else:
        slope = ((corners[:, 1] + corners[:, 3]) / 2 - centre_v) / camera.focal_px
        along = _middle_depths(corners, camera, depth)
    along = np.clip(along, NEAREST_M, FARTHEST_M)
    across = ((corners[:, 0] + corners[:, 2]) / 2 - centre_u) / camera.focal_px * along
    return np.stack([across, along * (c - s * slope)], axis=1)


def project_ground(points: NDArray[np.float64], camera: Camera) -> NDArray[np.float64]:
    """Projects points of the ground into the picture.

    Args:
        points: [..., 2] x, z in metres.
        camera: the camera.

    Returns:
        [..., 2] u, v in pixels; NaN for points behind or within 0.5 m of the camera.
    """
    c, s = cos(camera.pitch_rad), sin(camera.pitch_rad)
    across, forward = points[..., 0], points[..., 1]
    along = forward * c + camera.mount_height_m * s
    along = np.where(along < NEAREST_M, np.nan, along)
    scale = camera.focal_px / along
    u = across * scale + (camera.width - 1) / 2
    v = (camera.mount_height_m * c - forward * s) * scale + (camera.height - 1) / 2
    return np.stack([u, v], axis=-1)


def _middle_depths(
    boxes: NDArray[np.float64], camera: Camera, depth: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Returns the median depth over a 5 x 5 grid in the middle half of each box."""
    rows, columns = depth.shape
    parts = np.linspace(0.25, 0.75, 5)
    u = boxes[:, 0, None] + parts * (boxes[:, 2] - boxes[:, 0])[:, None]
    v = boxes[:, 1, None] + parts * (boxes[:, 3] - boxes[:, 1])[:, None]
    column = np.clip(u * (columns / camera.width), 0, columns - 1).astype(np.int64)
    row = np.clip(v * (rows / camera.height), 0, rows - 1).astype(np.int64)
    samples = depth[row[:, :, None], column[:, None, :]].reshape(len(boxes), 25)
    return np.asarray(np.partition(samples, 12, axis=1)[:, 12], np.float64)
