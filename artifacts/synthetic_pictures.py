"""Pictures drawn at random, for checks that have no samples of the network's real input.

White noise is the wrong input for such a check: it is far from all that a network was trained on,
and deep networks answer it with outputs thousands of times their usual size, in which rounding
errors are as large as the values. The spectrum of photographs falls with the frequency instead
(Field, "Relations between the statistics of natural images", 1987); so does that of these pictures.
"""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from artifacts.input_spec import InputSpec

PICTURE_RANK = 4
"""Inputs of this many dimensions are taken for pictures, [N, C, H, W]."""
MAX_PIXEL = 255
MEAN_PIXEL = 118
PIXEL_DEVIATION = 60
"""About those of photographs, with which ImageNet networks are normalized."""


def draw_pictures(shape: Sequence[int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Returns pictures of zero mean and unit variance: blobs of every size, equally strong.

    Args:
        shape: [N, C, H, W].
        rng: what is drawn from.
    """
    height, width = shape[2:]
    planes = np.zeros((shape[0] * shape[1], height, width), np.float32)
    cells = 1
    while cells < 2 * max(height, width):
        size = (min(cells, height), min(cells, width))
        for plane in planes:
            blobs = rng.standard_normal(size, dtype=np.float32)
            plane += cv2.resize(blobs, (width, height), interpolation=cv2.INTER_LINEAR)
        cells *= 2
    planes -= planes.mean()
    deviation = float(planes.std()) or 1.0
    return (planes / deviation).reshape(tuple(shape))


def draw_input(shape: Sequence[int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Returns random values of zero mean and unit variance, as pictures where the shape is theirs.

    Args:
        shape: of the input, whatever it means.
        rng: what is drawn from.
    """
    if len(shape) == PICTURE_RANK:
        return draw_pictures(shape, rng)
    return rng.standard_normal(tuple(shape), dtype=np.float32)


def draw_prepared(
    shape: Sequence[int], rng: np.random.Generator, spec: InputSpec
) -> NDArray[np.floating[Any]]:
    """Returns random pixels as an input spec prepares them; mean and std only where it has them.

    Args:
        shape: of the input, whatever it means.
        rng: what is drawn from.
        spec: how pixels become the input.
    """
    pixels = MEAN_PIXEL + PIXEL_DEVIATION * draw_input(shape, rng)
    values = np.asarray(np.clip(pixels, 0, MAX_PIXEL) * spec.pixel_scale)
    if not has_colors(shape, spec):
        return values
    mean, std = (np.reshape(part, (1, -1, 1, 1)) for part in (spec.mean, spec.std))
    prepared: NDArray[np.floating[Any]] = (values - mean) / std
    return prepared


def has_colors(shape: Sequence[int], spec: InputSpec) -> bool:
    """Returns whether an input has the shape of pictures with the channels of an input spec."""
    return len(shape) == PICTURE_RANK and shape[1] == len(spec.mean)
