"""Paints a layout, far to near, and reads the labels off the painted buffers."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from perception.scene.camera import Camera
from perception.scene.canvas import Canvas
from perception.scene.lighting import Lighting, apply_air, expose
from perception.scene.pedestrians import Pedestrian, paint_pedestrian
from perception.scene.road import Road, paint_ground
from perception.scene.sample import BOX_CLASSES, MASK_CLASSES, Scene
from perception.scene.scenery import (
    Building,
    Pole,
    Tree,
    paint_building,
    paint_pole,
    paint_sky,
    paint_tree,
)
from perception.scene.shadows import paint_shadows
from perception.scene.vehicles import Vehicle, light_positions, paint_vehicle

MIN_VISIBLE_PART = 0.35
MIN_SHORT_SIDE_PX = 8.0
MIN_LONG_SIDE_PX = 12.0
REFERENCE_HEIGHT_PX = 288


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Everything a picture shows, in the vehicle frame.

    Attributes:
        camera: the camera.
        road: the road.
        lighting: light and weather.
        users: road users, at most 254.
        ids: identity of each road user.
        buildings: houses; they stand behind all road users.
        plants: trees and poles.
        sky_variant: chooses clouds and skyline.
        sky_shift_px: sideways shift of the skyline.
        noise_seed: chooses the sensor noise.
    """

    camera: Camera
    road: Road
    lighting: Lighting
    users: tuple[Vehicle | Pedestrian, ...]
    ids: tuple[int, ...] = ()
    buildings: tuple[Building, ...] = ()
    plants: tuple[Tree | Pole, ...] = ()
    sky_variant: int = 0
    sky_shift_px: float = 0.0
    noise_seed: int = 0


def render(layout: Layout) -> Scene:
    """Renders a layout with exact labels.

    A road user gets a box around its visible pixels. It gets none if less than
    `MIN_VISIBLE_PART` of its pixels inside the picture are visible, or if the box is smaller than
    `MIN_SHORT_SIDE_PX` or `MIN_LONG_SIDE_PX` (in a picture 288 pixels high, in proportion
    otherwise); its mask and depth stay.
    """
    canvas, lighting = Canvas(layout.camera), layout.lighting
    paint_sky(canvas, lighting, layout.sky_variant, layout.sky_shift_px)
    ground = paint_ground(canvas, layout.road, lighting)
    paint_shadows(canvas, layout.users, lighting)
    for house in sorted(layout.buildings, key=lambda b: -b.pose.z):
        paint_building(canvas, lighting, house)
    painted = _paint_standing(canvas, layout)
    apply_air(canvas, lighting)
    if lighting.is_night:
        _add_glow(canvas, layout.users)
    image = expose(canvas.image, lighting, np.random.default_rng(layout.noise_seed))
    boxes, kept = _find_boxes(canvas.instance, painted)
    with np.errstate(divide="ignore"):
        depth = np.reciprocal(canvas.inverse_depth)
    labels = [_box_class(layout.users[i]) for i in kept]
    return Scene(
        image=image,
        boxes=boxes,
        labels=np.array(labels, np.int64),
        mask=_read_mask(canvas.instance, ground, layout.users),
        depth=depth,
        ids=np.array([layout.ids[i] for i in kept], np.int64) if layout.ids else None,
    )


def _distance(thing: Vehicle | Pedestrian | Tree | Pole) -> float:
    return thing.pose.z if isinstance(thing, Vehicle) else thing.z


def _paint_standing(canvas: Canvas, layout: Layout) -> NDArray[np.int64]:
    """Paints road users, trees and poles; returns the pixels [N] that each user painted."""
    painted = np.zeros(len(layout.users), np.int64)
    number = {id(user): i for i, user in enumerate(layout.users)}
    for thing in sorted([*layout.users, *layout.plants], key=_distance, reverse=True):
        match thing:
            case Tree():
                paint_tree(canvas, layout.lighting, thing)
            case Pole():
                paint_pole(canvas, layout.lighting, thing)
            case Vehicle() | Pedestrian():
                i = number[id(thing)]
                _paint_user(canvas, layout.lighting, thing, i + 1)
                painted[i] = np.count_nonzero(canvas.instance == i + 1)
    return painted


def _paint_user(
    canvas: Canvas, lighting: Lighting, user: Vehicle | Pedestrian, instance: int
) -> None:
    if isinstance(user, Vehicle):
        paint_vehicle(canvas, lighting, user, instance)
    else:
        paint_pedestrian(canvas, lighting, user, instance)


def _find_boxes(
    instance: NDArray[np.uint8], painted: NDArray[np.int64]
) -> tuple[NDArray[np.float32], list[int]]:
    scale = instance.shape[0] / REFERENCE_HEIGHT_PX
    visible = np.bincount(instance.ravel(), minlength=256)
    boxes, kept = [], []
    for i, total in enumerate(painted):
        if total == 0 or visible[i + 1] < MIN_VISIBLE_PART * total:
            continue
        x, y, width, height = cv2.boundingRect((instance == i + 1).view(np.uint8))
        long_side, short_side = max(width, height), min(width, height)
        if short_side >= MIN_SHORT_SIDE_PX * scale and long_side >= MIN_LONG_SIDE_PX * scale:
            boxes.append((x, y, x + width, y + height))
            kept.append(i)
    return np.array(boxes, np.float32).reshape(-1, 4), kept


def _box_class(user: Vehicle | Pedestrian) -> int:
    if isinstance(user, Pedestrian):
        return BOX_CLASSES.index("pedestrian")
    return BOX_CLASSES.index("truck" if user.is_truck else "car")


def _read_mask(
    instance: NDArray[np.uint8],
    ground: NDArray[np.uint8],
    users: tuple[Vehicle | Pedestrian, ...],
) -> NDArray[np.uint8]:
    table = np.full(256, MASK_CLASSES.index("background"), np.uint8)
    for i, user in enumerate(users):
        name = "vehicle" if isinstance(user, Vehicle) else "pedestrian"
        table[i + 1] = MASK_CLASSES.index(name)
    mask = cv2.LUT(instance, table)
    bare = cv2.compare(instance, 0, cv2.CMP_EQ)
    merged: NDArray[np.uint8] = cv2.copyTo(ground, bare, mask)
    return merged


def _add_glow(canvas: Canvas, users: tuple[Vehicle | Pedestrian, ...]) -> None:
    """Adds the light of head and rear lamps that no other thing hides."""
    glow = np.zeros_like(canvas.image)
    for i, user in enumerate(users):
        if not isinstance(user, Vehicle):
            continue
        lamps, is_rear = light_positions(user)
        inner = canvas.camera.to_camera(lamps)
        if (inner[:, 2] < 1).any():
            continue
        for (u, v), z in zip(canvas.camera.to_pixels(inner), inner[:, 2], strict=True):
            column, row = round(u), round(v)
            inside = 0 <= column < canvas.camera.width and 0 <= row < canvas.camera.height
            if inside and canvas.instance[row, column] == i + 1:
                radius = max(1, round(0.16 * canvas.camera.focal_px / z))
                colour = (40, 30, 200) if is_rear else (200, 225, 235)
                cv2.circle(glow, (column, row), radius, colour, -1, cv2.LINE_AA)
    glow = cv2.blur(glow, (7, 7))
    cv2.add(canvas.image, glow, canvas.image)
