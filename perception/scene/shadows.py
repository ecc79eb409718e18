"""Shadows of road users on the ground: soft below them, long where the sun shines."""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from perception.scene.camera import clip_near
from perception.scene.canvas import Canvas
from perception.scene.lighting import Lighting
from perception.scene.pedestrians import Pedestrian
from perception.scene.solid import Pose
from perception.scene.vehicles import Vehicle

_MAX_SHADOW_PER_HEIGHT = 2.0


def paint_shadows(
    canvas: Canvas, users: Sequence[Vehicle | Pedestrian], lighting: Lighting
) -> None:
    """Darkens the ground, which must be the only thing painted so far, in place."""
    if not users:
        return
    shape = canvas.instance.shape
    light = np.full(shape, 255, np.uint8)
    horizontal = np.array([-lighting.sun[0], 0.0, -lighting.sun[2]]) / lighting.sun[1]
    length = float(np.sqrt(horizontal @ horizontal))
    horizontal *= min(1.0, _MAX_SHADOW_PER_HEIGHT / max(length, 1e-6))
    if lighting.diffuse > 0.2:
        for user in users:
            base = _footprint(user, 1.0)
            cast = np.concatenate([base, base + horizontal * user.height])
            _fill_hull(canvas, light, cast, 150)
    for user in users:
        _fill_hull(canvas, light, _footprint(user, 1.12), 90)
    light = cv2.blur(light, (3, 3))
    first = max(0, int(canvas.camera.horizon_px))
    ground = canvas.image[first:]
    three = cv2.merge([light[first:]] * 3)
    canvas.image[first:] = cv2.multiply(ground, three, scale=1 / 255)


def _footprint(user: Vehicle | Pedestrian, grow: float) -> NDArray:
    if isinstance(user, Vehicle):
        pose, width, length = user.pose, user.width, user.length
    else:
        pose, width, length = Pose(user.x, user.z, 0.0), 0.5, 0.35
    a, b = width / 2 * grow, length / 2 * grow
    return pose.place(np.array([[-a, 0, -b], [a, 0, -b], [a, 0, b], [-a, 0, b]]))


def _fill_hull(canvas: Canvas, light: NDArray, ground_points: NDArray, value: int) -> None:
    flat = cv2.convexHull(ground_points[:, [0, 2]].astype(np.float32))[:, 0]
    points = np.stack([flat[:, 0], np.zeros(len(flat)), flat[:, 1]], axis=-1)
    inner = clip_near(canvas.camera.to_camera(points))
    if len(inner) >= 3:
        pixels = np.clip(canvas.camera.to_pixels(inner), -4000, 4000)
        cv2.fillConvexPoly(light, np.rint(pixels * 16).astype(np.int32), value, cv2.LINE_AA, 4)
