"""The buffers that a scene is painted into: colour, inverse depth and instance."""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from perception.scene.camera import Camera, clip_near

Colour = Sequence[float]

STRUCTURE = 255
"""Instance number of everything that stands on the ground without being labelled."""

_SHIFT = 4
_TURN = np.array([1, 2, 0])
_LIMIT_PX = 8000.0


class Canvas:
    """Paints polygons far to near, keeping colour, inverse depth and instance in step.

    Attributes:
        image: [H, W, 3] uint8 BGR.
        inverse_depth: [H, W] float32 in 1/m, 0 for the sky.
        instance: [H, W] uint8; 0 ground and sky, 1 to 254 road users, `STRUCTURE` the rest.
    """

    def __init__(self, camera: Camera) -> None:
        self.camera = camera
        self.image = np.zeros((camera.height, camera.width, 3), np.uint8)
        self.inverse_depth = np.zeros((camera.height, camera.width), np.float32)
        self.instance = np.zeros((camera.height, camera.width), np.uint8)
        columns = (np.arange(camera.width) - (camera.width - 1) / 2) / camera.focal_px
        rows = (np.arange(camera.height) - (camera.height - 1) / 2) / camera.focal_px
        self._columns, self._rows = columns.astype(np.float32), rows.astype(np.float32)

    def fill_face(self, points: NDArray, colour: Colour, instance: int) -> None:
        """Paints a flat convex polygon [K, 3] of the camera frame with its plane's depth."""
        points = clip_near(points)
        if len(points) < 3:
            return
        normal = cross(points[1] - points[0], points[2] - points[0])
        offset = float(normal @ points[0])
        if abs(offset) < 1e-9:
            return
        pixels = self.camera.to_pixels(points)
        inverse = 1.0 / points[:, 2]
        limits = (float(inverse.min()), float(inverse.max()))
        self._fill_plane(pixels, colour, instance, normal / offset, limits)

    def fill_flat(self, pixels: NDArray, colour: Colour, instance: int, depth_m: float) -> None:
        """Paints a convex polygon [K, 2] of pixels that faces the camera at one depth."""
        fixed = _fixed_point(pixels)
        cv2.fillConvexPoly(self.image, fixed, colour, cv2.LINE_AA, _SHIFT)
        cv2.fillConvexPoly(self.instance, fixed, instance, cv2.LINE_8, _SHIFT)
        cv2.fillConvexPoly(self.inverse_depth, fixed, 1 / depth_m, cv2.LINE_8, _SHIFT)

    def decorate(self, polygons: NDArray, colour: Colour) -> None:
        """Paints polygons [P, K, 3] of the camera frame on faces that are there already.

        Polygons that reach behind the camera are left out.
        """
        polygons = polygons[(polygons[..., 2] > 0.4).all(axis=1)]
        if len(polygons):
            pixels = _fixed_point(self.camera.to_pixels(polygons))
            cv2.fillPoly(self.image, list(pixels), colour, cv2.LINE_AA, _SHIFT)

    def _fill_plane(
        self,
        pixels: NDArray,
        colour: Colour,
        instance: int,
        plane: NDArray,
        limits: tuple[float, float],
    ) -> None:
        """Fills a polygon whose inverse depth is plane . (x / z, y / z, 1), within limits."""
        width, height = self.camera.width, self.camera.height
        (low_u, low_v), (high_u, high_v) = pixels.min(axis=0), pixels.max(axis=0)
        left, top = max(int(low_u) - 1, 0), max(int(low_v) - 1, 0)
        right, bottom = min(int(high_u) + 3, width), min(int(high_v) + 3, height)
        if left >= right or top >= bottom:
            return
        fixed = _fixed_point(pixels)
        cv2.fillConvexPoly(self.image, fixed, colour, cv2.LINE_AA, _SHIFT)
        cv2.fillConvexPoly(self.instance, fixed, instance, cv2.LINE_8, _SHIFT)
        region = np.s_[top:bottom, left:right]
        covered = np.zeros((bottom - top, right - left), np.uint8)
        cv2.fillConvexPoly(covered, fixed - (left << _SHIFT, top << _SHIFT), 1, cv2.LINE_8, _SHIFT)
        rows = plane[1] * self._rows[top:bottom] + plane[2]
        inverse = np.add.outer(rows, plane[0] * self._columns[left:right], dtype=np.float32)
        np.maximum(inverse, limits[0], out=inverse)
        np.minimum(inverse, limits[1], out=inverse)
        np.copyto(self.inverse_depth[region], inverse, where=covered.view(np.bool_))


def cross(a: NDArray, b: NDArray) -> NDArray:
    """Cross product of two vectors [..., 3]; numpy's own is slow on small arrays."""
    turned_a, turned_b = a[..., _TURN], b[..., _TURN]
    product: NDArray = (a * turned_b - turned_a * b)[..., _TURN]
    return product


def _fixed_point(pixels: NDArray) -> NDArray[np.int32]:
    limited = np.minimum(np.maximum(pixels, -_LIMIT_PX), _LIMIT_PX)
    fixed: NDArray[np.int32] = np.rint(limited * (1 << _SHIFT)).astype(np.int32)
    return fixed
