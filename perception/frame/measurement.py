"""What the tracker measures of a detection, and how far that can be trusted."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def measure_boxes(boxes: NDArray[np.float32]) -> Array:
    """Returns [N, 4] centre x, y and log width, height of boxes."""
    corners = np.asarray(boxes, np.float64)
    size = np.maximum(corners[:, 2:] - corners[:, :2], 1.0)
    return np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, np.log(size)], axis=1)


def box_variance(measured: Array) -> Array:
    """Returns the variance of box measurements: a pixel and 4 % of the size, 10 % in size."""
    size = np.exp(measured[:, 2:])
    return np.concatenate([np.square(1 + 0.04 * size), np.full_like(size, 0.1**2)], axis=1)


def place_variance(positions: Array) -> Array:
    """Returns the variance of places from frame to frame: 1 % sideways and 4 % of the distance."""
    distance = np.abs(positions[:, 1])
    return np.square(np.stack([0.1 + 0.01 * distance, 0.3 + 0.04 * distance], axis=1))
