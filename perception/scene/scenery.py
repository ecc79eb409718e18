"""What stands and hangs around the road: sky, skyline, buildings, trees, poles."""

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from perception.scene.canvas import STRUCTURE, Canvas, Colour
from perception.scene.lighting import Lighting
from perception.scene.solid import Face, Pose, Rectangle, paint_solid

_SKYLINE_DEPTH_M = 300.0
_WALLS = (
    (140, 160, 190), (120, 130, 150), (100, 120, 170), (170, 180, 185), (130, 110, 110),
    (150, 170, 160), (90, 105, 130),
)  # fmt: skip
_GREENS = ((50, 95, 55), (45, 110, 80), (60, 120, 60), (55, 105, 110))


@dataclass(frozen=True, kw_only=True)
class Building:
    """A house beside the road: its pose, size in metres and wall colour (BGR)."""

    pose: Pose
    length: float
    width: float
    height: float
    colour: Colour
    storey_m: float
    are_windows_lit: bool


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A tree: its place, height in metres, crown radius in metres and leaf colour (BGR)."""

    x: float
    z: float
    height: float
    crown: float
    colour: Colour


@dataclass(frozen=True, kw_only=True)
class Pole:
    """A lamp post or a traffic sign: its place, height in metres, and colour of the sign."""

    x: float
    z: float
    height: float
    sign: Colour | None


def sample_building(rng: np.random.Generator, pose: Pose, length: float, width: float) -> Building:
    """Draws the looks of a house."""
    return Building(
        pose=pose,
        length=length,
        width=width,
        height=float(rng.uniform(4, 18)),
        colour=tuple(np.array(_WALLS[rng.integers(len(_WALLS))]) * rng.uniform(0.8, 1.15)),
        storey_m=float(rng.uniform(2.8, 3.6)),
        are_windows_lit=bool(rng.random() < 0.5),
    )


def sample_tree(rng: np.random.Generator, x: float, z: float) -> Tree:
    """Draws the looks of a tree."""
    return Tree(
        x=x,
        z=z,
        height=float(rng.uniform(4, 8)),
        crown=float(rng.uniform(1.2, 2.4)),
        colour=tuple(np.array(_GREENS[rng.integers(len(_GREENS))]) * rng.uniform(0.8, 1.2)),
    )


def paint_sky(canvas: Canvas, lighting: Lighting, variant: int, shift_px: float) -> None:
    """Paints the sky with clouds, and a far skyline above the horizon.

    Args:
        canvas: the fresh canvas.
        lighting: gives the colours.
        variant: chooses clouds and skyline.
        shift_px: moves them sideways, as when the vehicle turns.
    """
    camera = canvas.camera
    horizon = int(np.clip(camera.horizon_px + 2, 1, camera.height))
    part = np.linspace(0, 1, horizon)[:, None]
    zenith, low = (np.array(c, np.float32) for c in lighting.sky)
    rows = zenith + (low - zenith) * part**1.5
    sky = np.repeat(rows.astype(np.uint8)[:, None, :], camera.width, axis=1)
    clouds = cv2.resize(_clouds(variant % 8), (camera.width, horizon), None, 0, 0, cv2.INTER_LINEAR)
    canvas.image[:horizon] = cv2.add(sky, cv2.merge([clouds] * 3))
    angle = (np.linspace(0, camera.width - 1, 65) - shift_px) / camera.width * 2 * np.pi
    waves = sum(np.sin(angle * k + variant * k) / k for k in (1, 2, 5, 11))
    top = camera.horizon_px - camera.focal_px * (0.025 + 0.008 * waves)
    outline = np.stack([np.linspace(0, camera.width - 1, 65), top], axis=-1)
    ends = [[camera.width - 1, horizon + 1], [0, horizon + 1]]
    polygon = np.concatenate([outline, ends]).astype(np.int32)
    hill = lighting.shade((105, 110, 90), np.array([0.0, 1.0, 0.0]))
    colour = [0.6 * h + 0.4 * s for h, s in zip(hill, lighting.sky[1], strict=True)]
    cv2.fillPoly(canvas.image, [polygon], colour, cv2.LINE_AA)
    cv2.fillPoly(canvas.inverse_depth, [polygon], 1 / _SKYLINE_DEPTH_M)


def paint_building(canvas: Canvas, lighting: Lighting, house: Building) -> None:
    """Paints a house with rows of windows."""
    half = house.length / 2
    shape = (
        Rectangle(house.width, half, -half, 0.0),
        Rectangle(house.width, half, -half, house.height),
    )
    glow = lighting.is_night and house.are_windows_lit
    pane = (150, 220, 250) if glow else lighting.shade((95, 85, 75), np.array([0.0, 1.0, 0.0]))
    for face in paint_solid(canvas, lighting, house.pose, shape, house.colour, STRUCTURE):
        if face.name != "top":
            size = house.width if face.name in ("front", "rear") else house.length
            canvas.decorate(_windows(face, size, house), pane)


def paint_tree(canvas: Canvas, lighting: Lighting, tree: Tree) -> None:
    """Paints a tree as a trunk and overlapping discs, flat towards the camera."""
    bark = lighting.shade((50, 65, 85), np.array([0.0, 0.4, -0.9]))
    tip, depth, scale = _paint_post(canvas, tree, 0.14, bark)
    turn = np.arange(10) * np.pi / 5
    disc = np.stack([np.cos(turn), np.sin(turn)], axis=-1) * tree.crown * scale
    for x, y, size, light in (
        (-0.5, 0.4, 0.75, 0.75),
        (0.5, 0.35, 0.75, 0.85),
        (0.0, 0.0, 0.9, 1.0),
    ):
        middle = tip + np.array([x, y]) * tree.crown * scale
        leaf = lighting.shade([c * light for c in tree.colour], np.array([0.0, 0.9, -0.4]))
        canvas.fill_flat(middle + disc * size, leaf, STRUCTURE, depth)


def paint_pole(canvas: Canvas, lighting: Lighting, pole: Pole) -> None:
    """Paints a lamp post or a sign, flat towards the camera."""
    steel = lighting.shade((120, 120, 118), np.array([0.0, 0.4, -0.9]))
    tip, depth, scale = _paint_post(canvas, pole, 0.07, steel)
    if pole.sign is not None:
        turn = np.arange(8) * np.pi / 4 + np.pi / 8
        plate = np.stack([np.cos(turn), np.sin(turn)], axis=-1) * 0.4 * scale
        colour = lighting.shade(pole.sign, np.array([0.0, 0.4, -0.9]))
        canvas.fill_flat(tip + plate, colour, STRUCTURE, depth)


def _paint_post(
    canvas: Canvas, post: Tree | Pole, half_width_m: float, colour: Colour
) -> tuple[NDArray, float, float]:
    """Paints an upright post; returns its tip in the picture, its depth in m, and pixels per m."""
    camera = canvas.camera
    ends = np.array([[post.x, 0.0, post.z], [post.x, post.height, post.z]])
    inner = camera.to_camera(ends)
    foot, tip = camera.to_pixels(inner)
    depth = float(inner[0, 2])
    scale = camera.focal_px / depth
    half = np.array([half_width_m * scale, 0])
    canvas.fill_flat(
        np.stack([foot - half, foot + half, tip + half, tip - half]), colour, STRUCTURE, depth
    )
    return tip, depth, scale


def _windows(face: Face, size: float, house: Building) -> NDArray:
    columns = max(1, int(size / 2.8))
    rows = max(1, int(house.height / house.storey_m))
    c, r = np.meshgrid(np.arange(columns), np.arange(rows))
    corner = np.stack([(c.ravel() + 0.28) / columns, (r.ravel() + 0.32) / rows], axis=-1)
    extent = np.array([0.45 / columns, 0.45 / rows])
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    return face.points(corner[:, None] + square * extent)


@lru_cache(maxsize=8)
def _clouds(variant: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(100 + variant)
    small = rng.standard_normal((10, 16), np.float32) * 20 - 8
    smooth = cv2.resize(small, (128, 64), None, 0, 0, cv2.INTER_CUBIC)
    clouds: NDArray[np.uint8] = np.clip(smooth, 0, 45).astype(np.uint8)
    return clouds
