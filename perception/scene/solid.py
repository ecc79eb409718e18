"""Boxes and frustums standing on the ground, seen as their visible faces."""

from dataclasses import dataclass
from math import cos, sin

import numpy as np
from numpy.typing import NDArray

from perception.scene.canvas import Canvas, Colour, cross
from perception.scene.lighting import Lighting

_NAMES = ("rear", "front", "right", "left", "top")
_CORNERS = np.array([(0, 1, 5, 4), (2, 3, 7, 6), (1, 2, 6, 5), (3, 0, 4, 7), (4, 5, 6, 7)])


@dataclass(frozen=True)
class Pose:
    """Where a thing stands: its middle on the ground and its yaw to the right, in radians."""

    x: float
    z: float
    yaw: float

    def place(self, local: NDArray) -> NDArray:
        """Moves points [..., 3] (right, up, forward) of the thing to the vehicle frame."""
        c, s = cos(self.yaw), sin(self.yaw)
        turn = np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
        placed: NDArray = local @ turn.T + np.array([self.x, 0.0, self.z])
        return placed


@dataclass(frozen=True)
class Rectangle:
    """A level rectangle of a frustum: width, front and rear end, height above ground (m)."""

    width: float
    front: float
    rear: float
    up: float

    def corners(self) -> list[tuple[float, float, float]]:
        """Rear left, rear right, front right, front left."""
        half = self.width / 2
        return [
            (-half, self.up, self.rear),
            (half, self.up, self.rear),
            (half, self.up, self.front),
            (-half, self.up, self.front),
        ]


@dataclass(frozen=True)
class Face:
    """A painted face: its name, and its corners [4, 3] in the camera frame.

    Corners go bottom left, bottom right, top right, top left, seen from outside.
    """

    name: str
    corners: NDArray

    def patch(self, left: float, right: float, bottom: float, top: float) -> NDArray:
        """A part [4, 3] of the face; the sides are given as parts of its width and height."""
        return self.points(np.array([[left, bottom], [right, bottom], [right, top], [left, top]]))

    def points(self, where: NDArray) -> NDArray:
        """Points [..., 3] of the face at the relative positions [..., 2]."""
        a, b = where[..., 0], where[..., 1]
        weights = np.stack([(1 - a) * (1 - b), a * (1 - b), a * b, (1 - a) * b], axis=-1)
        points: NDArray = weights @ self.corners
        return points


def paint_solid(
    canvas: Canvas,
    lighting: Lighting,
    pose: Pose,
    shape: tuple[Rectangle, Rectangle],
    colour: Colour,
    instance: int,
) -> list[Face]:
    """Paints the visible faces of the frustum between a lower and an upper rectangle.

    Returns:
        The visible faces, in the order in which they were painted.
    """
    corners = pose.place(np.array(shape[0].corners() + shape[1].corners()))
    inner = canvas.camera.to_camera(corners)
    eye = np.array([0.0, canvas.camera.mount_height_m, 0.0])
    quads = corners[_CORNERS]
    normals = cross(quads[:, 3] - quads[:, 0], quads[:, 1] - quads[:, 0])
    is_visible = ((eye - quads[:, 0]) * normals).sum(axis=1) > 0
    normals /= np.sqrt((normals * normals).sum(axis=1, keepdims=True))
    faces = []
    for i in np.flatnonzero(is_visible):
        face = Face(_NAMES[i], inner[_CORNERS[i]])
        canvas.fill_face(face.corners, lighting.shade(colour, normals[i]), instance)
        faces.append(face)
    return faces
