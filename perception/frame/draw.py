"""Draws what a frame found on its picture: boxes, classes of the ground, depth and the plan."""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perception.frame.decode import Detections
from perception.frame.ground import default_camera, project_ground
from perception.frame.lettering import Color, measure_text, write_text
from perception.frame.plan import Plan
from perception.frame.road_frame import FrameState
from perception.scene.camera import Camera

Picture = NDArray[np.uint8]

BOX_COLORS: dict[str, Color] = {
    "car": (255, 178, 60),
    "truck": (200, 110, 255),
    "pedestrian": (60, 220, 255),
}
OTHER_BOX_COLORS: tuple[Color, ...] = ((120, 230, 120), (90, 160, 255), (255, 220, 120))
MASK_TINTS: dict[str, tuple[Color, float]] = {
    "sidewalk": ((215, 120, 215), 0.42),
    "drivable": ((150, 75, 110), 0.42),
    "lane": ((90, 235, 255), 0.62),
    "vehicle": ((235, 130, 30), 0.38),
    "pedestrian": ((40, 60, 235), 0.42),
}
"""Per class its colour and how strongly it covers the picture."""
HIDING_CLASSES = ("vehicle", "pedestrian")
SAFE_COLOR: Color = (110, 240, 120)
BRAKE_COLOR: Color = (60, 60, 245)
DARK: Color = (28, 22, 18)
INSET_RANGE_M = (3.0, 80.0)
PATH_HALF_WIDTH_M = 0.8


def draw_frame(
    state: FrameState,
    heads_metadata: Mapping[str, Mapping[str, Any]],
    input_hw: tuple[int, int],
    camera: Camera | None = None,
) -> Picture:
    """Returns the frame's picture with everything found on it.

    Args:
        state: a frame after its last stage; parts without a result are left out.
        heads_metadata: the network's heads, for class names.
        input_hw: height and width of the network's input, which boxes refer to.
        camera: the camera; a common one where None.

    Returns:
        [H, W, 3] uint8 BGR, of the size of the frame's picture.
    """
    picture = state.picture.copy()
    picture_hw = (picture.shape[0], picture.shape[1])
    hidden = None
    if state.mask is not None:
        classes = heads_metadata["segmentation"]["classes"]
        overlay_mask(picture, state.mask, classes)
        hides = [label for label, name in enumerate(classes) if name in HIDING_CLASSES]
        hidden = enlarge_region(np.isin(state.mask, hides), picture_hw)
    if state.plan is not None:
        draw_plan(picture, state.plan, camera or default_camera(*picture_hw), hidden)
    if state.detections is not None and "detection" in heads_metadata:
        draw_detections(picture, state.detections, heads_metadata["detection"]["classes"], input_hw)
    if state.depth is not None:
        inset_depth(picture, state.depth)
    return picture


def overlay_mask(picture: Picture, mask: NDArray[np.uint8], classes: Sequence[str]) -> None:
    """Tints the picture by class, with edges smoothed up from the mask's resolution.

    Args:
        picture: [H, W, 3], changed in place.
        mask: [h, w] class indices.
        classes: names by index; those without a colour are left clear.
    """
    picture_hw = (picture.shape[0], picture.shape[1])
    for label, name in enumerate(classes):
        if name in MASK_TINTS and (mask == label).any():
            color, strength = MASK_TINTS[name]
            _blend_in(picture, color, enlarge_region(mask == label, picture_hw) * strength)


def enlarge_region(region: NDArray[np.bool_], picture_hw: tuple[int, int]) -> NDArray[np.float32]:
    """Returns how far each pixel of the picture belongs to a region of a smaller mask.

    Args:
        region: [h, w] flags.
        picture_hw: the picture's height and width.

    Returns:
        [H, W] float32 in 0..1 with smooth edges.
    """
    import cv2

    share = cv2.resize(region.astype(np.float32), picture_hw[::-1], interpolation=cv2.INTER_CUBIC)
    return np.asarray(np.clip((share - 0.35) / 0.3, 0, 1), np.float32)


def draw_detections(
    picture: Picture,
    detections: Detections,
    classes: Sequence[str],
    input_hw: tuple[int, int],
) -> None:
    """Draws each box with its class and score, far ones first.

    Args:
        picture: [H, W, 3], changed in place.
        detections: boxes in input pixels.
        classes: names by label.
        input_hw: height and width of the network's input.
    """
    import cv2

    height, width = picture.shape[:2]
    scale = np.asarray([width / input_hw[1], height / input_hw[0]] * 2)
    line = max(2, round(height / 320))
    chips: list[tuple[str, Color, tuple[int, ...]]] = []
    for index in np.argsort(detections.boxes[:, 3], kind="stable"):
        corners = tuple(int(v) for v in np.rint(detections.boxes[index] * scale))
        label = int(detections.labels[index])
        color = BOX_COLORS.get(classes[label], OTHER_BOX_COLORS[label % len(OTHER_BOX_COLORS)])
        cv2.rectangle(picture, corners[:2], corners[2:], DARK, line + 2, cv2.LINE_AA)
        cv2.rectangle(picture, corners[:2], corners[2:], color, line, cv2.LINE_AA)
        chips.append((f"{classes[label]} {detections.scores[index]:.2f}", color, corners))
    taken: list[tuple[int, int, int, int]] = []
    for text, color, (x1, y1, _, y2) in reversed(chips):
        taken.append(_draw_chip(picture, text, color, x1 - line // 2, (y1, y2), taken))


def _draw_chip(
    picture: Picture,
    text: str,
    color: Color,
    left_px: int,
    edges_px: tuple[int, int],
    taken: Sequence[tuple[int, int, int, int]],
) -> tuple[int, int, int, int]:
    """Writes dark text on a filled chip above or below a box, where no other chip is.

    Returns:
        the chip's x1, y1, x2, y2.
    """
    height, width = picture.shape[:2]
    size = max(10, round(height / 52))
    chip_width = measure_text(text, size_px=size, is_bold=True) + size // 2
    chip_height = round(size * 1.35)
    left = min(max(left_px, 0), max(width - chip_width, 0))
    upper, lower = edges_px
    tops = [upper - chip_height, lower, *(upper - n * chip_height for n in (2, 3, 4))]
    tops = [min(max(top, 0), height - chip_height) for top in tops]
    places = [(left, top, left + chip_width, top + chip_height) for top in tops]
    place = next((p for p in places if not any(_overlap(p, t) for t in taken)), places[0])
    picture[place[1] : place[3], place[0] : place[2]] = color
    baseline = place[3] - round(size * 0.36)
    write_text(picture, text, left + size / 4, baseline, size_px=size, color=DARK, is_bold=True)
    return place


def _overlap(first: tuple[int, int, int, int], second: tuple[int, int, int, int]) -> bool:
    return (
        first[0] < second[2]
        and second[0] < first[2]
        and first[1] < second[3]
        and second[1] < first[3]
    )


def draw_plan(
    picture: Picture,
    plan: Plan,
    camera: Camera,
    hidden: NDArray[np.float32] | None = None,
) -> None:
    """Lays the planned path on the road, green, or red where it is an emergency stop.

    Args:
        picture: [H, W, 3], changed in place.
        plan: the plan in metres.
        camera: the camera, of any picture size.
        hidden: [H, W] in 0..1, where something stands in front of the road; None for nowhere.
    """
    import cv2

    path = _resample(plan.positions)
    height, width = picture.shape[:2]
    aside = np.asarray([PATH_HALF_WIDTH_M, 0.0])
    sides = np.stack([path - aside, path + aside], axis=1)
    pixels = project_ground(sides, camera) * [width / camera.width, height / camera.height]
    pixels = pixels[np.isfinite(pixels).all(axis=(1, 2))]
    if len(pixels) < 2:
        return
    fixed = np.rint(pixels * 16).astype(np.int32)
    layer = np.zeros((height, width), np.float32)
    for step in range(len(fixed) - 1):
        quad = np.concatenate([fixed[step], fixed[step + 1, ::-1]])
        cv2.fillConvexPoly(layer, quad, 0.6 - 0.4 * step / len(fixed), cv2.LINE_8, 4)
    edges = [np.ascontiguousarray(fixed[:, side]) for side in (0, 1)]
    cv2.polylines(layer, edges, False, 0.95, max(2, height // 300), cv2.LINE_AA, 4)
    if hidden is not None:
        layer *= 1 - hidden
    _blend_in(picture, SAFE_COLOR if plan.is_feasible else BRAKE_COLOR, layer)


def inset_depth(picture: Picture, depth: NDArray[np.float32]) -> None:
    """Puts the depth map in the upper right corner, near warm and far cold, on a log scale.

    Args:
        picture: [H, W, 3], changed in place.
        depth: [h, w] metres.
    """
    import cv2

    height, width = picture.shape[:2]
    inset_width = width // 4
    inset_height = round(inset_width * depth.shape[0] / depth.shape[1])
    near, far = INSET_RANGE_M
    metres = np.clip(np.asarray(depth, np.float32), near, far)
    level = 1 - (np.log(metres) - log(near)) / (log(far) - log(near))
    level = cv2.resize(level, (inset_width, inset_height), interpolation=cv2.INTER_LINEAR)
    colors = cv2.applyColorMap((level * 255 + 0.5).astype(np.uint8), cv2.COLORMAP_TURBO)
    margin, size = height // 45, max(11, round(height / 46))
    top, left = margin, width - margin - inset_width
    frame = max(2, height // 360)
    bottom, right = top + inset_height, left + inset_width
    picture[max(top - frame, 0) : bottom + frame, left - frame : right + frame] = (245, 245, 245)
    picture[top:bottom, left:right] = colors
    band = picture[bottom - round(size * 1.5) : bottom, left:right]
    band[:] = (band * 0.3).astype(np.uint8)
    text = f"depth  {near:.0f} m (red) to {far:.0f} m (blue)"
    write_text(
        picture, text, left + size / 2, bottom - size * 0.45, size_px=size
    )  # fmt: skip


def compose_side_by_side(
    left: Picture,
    right: Picture,
    *,
    title: str,
    names: tuple[str, str] = ("float", "INT8"),
    captions: tuple[str, str] = ("", ""),
    panel_width: int = 960,
) -> Picture:
    """Sets two pictures of the same frame beside each other under one title.

    Args:
        left: [H, W, 3] uint8 BGR.
        right: [H, W, 3] uint8 BGR, of the same size.
        title: one line above both.
        names: what each panel is.
        captions: one line below each, such as its latency.
        panel_width: width of each panel in pixels.

    Returns:
        [h, w, 3] uint8 BGR.
    """
    import cv2

    panel_height = round(panel_width * left.shape[0] / left.shape[1])
    unit = max(12, panel_width // 44)
    gap, bar, foot = unit // 2, round(unit * 2.4), round(unit * 2.2)
    canvas = np.full((bar + panel_height + foot, 2 * panel_width + gap, 3), DARK, np.uint8)
    write_text(canvas, title, unit, bar - unit * 0.85, size_px=unit, is_bold=True)
    for index, picture in enumerate((left, right)):
        start = index * (panel_width + gap)
        canvas[bar : bar + panel_height, start : start + panel_width] = cv2.resize(
            picture, (panel_width, panel_height), interpolation=cv2.INTER_AREA
        )
        color = (210, 205, 200) if index == 0 else SAFE_COLOR
        baseline = bar + panel_height + foot - unit * 0.75
        write_text(
            canvas, names[index], start + unit, baseline, size_px=unit, color=color, is_bold=True
        )
        shift = measure_text(names[index], size_px=unit, is_bold=True) + 2 * unit
        write_text(canvas, captions[index], start + shift, baseline, size_px=unit)
    return canvas


def _blend_in(picture: Picture, color: Color, strength: NDArray[np.float32]) -> None:
    """Moves the picture towards a colour, by the strength [H, W] in 0..1 of each pixel."""
    part = strength[..., None]
    mixed = picture * (1 - part) + np.asarray(color, np.float32) * part
    picture[:] = (mixed + 0.5).astype(np.uint8)


def _resample(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns points of the path every half metre from just ahead of the vehicle on."""
    path = np.concatenate([[[0.0, 0.0]], positions])
    forward = np.arange(3.0, path[-1, 1], 0.5)
    return np.stack([np.interp(forward, path[:, 1], path[:, 0]), forward], axis=1)
