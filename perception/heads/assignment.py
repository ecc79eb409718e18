"""Which location of the feature maps learns which box (FCOS, Tian et al., 2019)."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perception.scene.sample import Scene

MIN_DISTANCE = 0.05
"""Smallest distance to an edge, in strides: the logarithm of the distance must stay finite."""


@dataclass(frozen=True, kw_only=True)
class BoxAssignment:
    """Assigns each box to a level by its size, and to the locations near its centre.

    Attributes:
        strides: strides of the levels in pixels, finest first.
        limits_px: a box whose largest distance to an edge is above limit i goes to level i + 1;
            one limit fewer than strides.
        radius: locations within this many strides of the centre learn the box.
        overlap: boxes within this factor of a limit are learned by both levels.
    """

    strides: tuple[int, ...] = (8, 16)
    limits_px: tuple[float, ...] = (40.0,)
    radius: float = 1.5
    overlap: float = 1.25

    def encode(self, scene: Scene, scale: float) -> dict[str, NDArray[np.generic]]:
        """Returns, per stride s, the targets of each location.

        Args:
            scene: boxes [N, 4] in pixels and labels [N].
            scale: unused; boxes are assigned by their size in the picture the network sees.

        Returns:
            `class_s` [H/s, W/s] int64, -1 where there is no object; `box_s` [4, H/s, W/s] float32,
            distances to left, top, right and bottom in strides.
        """
        height, width = scene.mask.shape
        edges = (0.0, *self.limits_px, np.inf)
        targets: dict[str, NDArray[np.generic]] = {}
        for stride, (low, high) in zip(self.strides, pairwise(edges), strict=True):
            reach = _reach(scene.boxes)
            chosen = (reach > low / self.overlap) & (reach <= high * self.overlap)
            labels, boxes = assign_level(
                scene.boxes[chosen],
                scene.labels[chosen],
                (height // stride, width // stride),
                stride,
                self.radius,
            )
            targets[f"class_{stride}"] = labels
            targets[f"box_{stride}"] = boxes
        return targets


def assign_level(
    boxes: NDArray[np.float32],
    labels: NDArray[np.int64],
    size: tuple[int, int],
    stride: int,
    radius: float,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Assigns boxes to the locations ((x + 0.5) s, (y + 0.5) s) of one level.

    A location learns a box if it lies inside it and within `radius` strides of its centre; the
    smallest such box wins. A box too small to hold a location gets the one nearest its centre.

    Args:
        boxes: [N, 4] x1, y1, x2, y2 in pixels.
        labels: [N] class indices.
        size: rows and columns of the level.
        stride: pixels per location.
        radius: in strides.

    Returns:
        classes [rows, columns], -1 for background, and distances [4, rows, columns] in strides.
    """
    rows, columns = size
    classes = np.full(size, -1, np.int64)
    distances = np.ones((4, rows, columns), np.float32)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for index in np.argsort(-areas, kind="stable"):
        box = boxes[index] / stride
        centre_x, centre_y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        x_range = _span(box[0], box[2], centre_x, radius, columns)
        y_range = _span(box[1], box[3], centre_y, radius, rows)
        x, y = np.arange(*x_range) + 0.5, np.arange(*y_range) + 0.5
        window = (slice(*y_range), slice(*x_range))
        classes[window] = labels[index]
        distances[0][window] = np.maximum(x - box[0], MIN_DISTANCE)
        distances[1][window] = np.maximum(y - box[1], MIN_DISTANCE)[:, None]
        distances[2][window] = np.maximum(box[2] - x, MIN_DISTANCE)
        distances[3][window] = np.maximum(box[3] - y, MIN_DISTANCE)[:, None]
    return classes, distances


def _reach(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns half of each box's longer side: its largest distance to an edge at the centre."""
    reach: NDArray[np.float32] = np.maximum(
        boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    ) / np.float32(2)
    return reach


def _span(low: float, high: float, centre: float, radius: float, count: int) -> tuple[int, int]:
    """Returns the half-open range of indices i with i + 0.5 in the box and near its centre."""
    first = int(np.ceil(max(low, centre - radius) - 0.5))
    last = int(np.floor(min(high, centre + radius) - 0.5))
    if last < first:
        first = last = int(np.floor(centre))
    first = min(max(first, 0), count - 1)
    last = min(max(last, first), count - 1)
    return first, last + 1
