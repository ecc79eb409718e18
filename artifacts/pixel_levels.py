"""Tells arrays of pixels by their levels: a camera's pixels have 256, however they were scaled."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.input_spec import InputSpec
from artifacts.samples import pick_evenly
from artifacts.synthetic_pictures import PICTURE_RANK

CONVENTIONS = (
    InputSpec(),
    InputSpec(pixel_scale=1.0),
    InputSpec(mean=(0.5,) * 3, std=(0.5,) * 3),
    InputSpec(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    InputSpec(mean=(0.406, 0.456, 0.485), std=(0.225, 0.224, 0.229)),
)
"""How pixels are usually scaled: 0 to 1, 0 to 255, -1 to 1, and by ImageNet's means, RGB or BGR."""
FEW = 4
"""Samples that pixels are told by."""
LEVELS = 255.0
LEAST_LEVEL = 128.0
"""Whole numbers that stay below are classes or counts rather than pixels."""
NEAR = 1e-3
"""How far from a level a pixel may be, as a share of a step: they were divided in float32."""

Array = NDArray[Any]


def find_extremes(
    samples: Sequence[dict[str, Array]], specs: Sequence[InputSpec] = CONVENTIONS
) -> tuple[dict[str, Array], ...]:
    """Returns two samples, black and white; none where no input is told to be pixels.

    Args:
        samples: arrays by input; a few of them are looked at.
        specs: how pixels may have been scaled.
    """
    few = pick_evenly(samples, FEW)
    ends = {name: find_ends([sample[name] for sample in few], specs) for name in few[0]}
    found = {name: pair for name, pair in ends.items() if pair is not None}
    if not found:
        return ()
    return tuple(few[0] | {name: pair[end] for name, pair in found.items()} for end in (0, 1))


def find_ends(
    pictures: Sequence[Array], specs: Sequence[InputSpec] = CONVENTIONS
) -> tuple[Array, Array] | None:
    """Returns black and white as arrays like the pictures; None where these are no known pixels.

    Args:
        pictures: values of one input, [N, C, H, W] or [N, H, W, C], with more axes in front or not.
        specs: how pixels may have been scaled; the first that gives all values is taken.
    """
    first = pictures[0]
    if first.ndim < PICTURE_RANK or first.dtype.kind != "f":
        return None
    for spec in specs:
        for axis in _channel_axes(first.shape, spec):
            scale, offset = _affine(spec, first.ndim, axis)
            if _lie_on_levels((picture - offset) / scale for picture in pictures):
                ends = (offset + level * scale for level in (0.0, LEVELS))
                black, white = (
                    np.ascontiguousarray(np.broadcast_to(end, first.shape)).astype(first.dtype)
                    for end in ends
                )
                return black, white
    return None


def _channel_axes(shape: Sequence[int], spec: InputSpec) -> list[int]:
    """Returns the axes that may count the channels; any where all are scaled alike."""
    if len({*zip(spec.mean, spec.std, strict=True)}) == 1:
        return [0]
    return [axis for axis in (-3, -1) if shape[axis] == len(spec.mean)]


def _affine(spec: InputSpec, rank: int, axis: int) -> tuple[Array, Array]:
    """Returns scale and offset of a level: the input is `level * scale + offset`."""
    is_one = len({*zip(spec.mean, spec.std, strict=True)}) == 1
    mean, std = (np.array(value[:1] if is_one else value) for value in (spec.mean, spec.std))
    shape = [1] * rank
    shape[axis] = len(mean)
    scale, offset = spec.pixel_scale / std, -mean / std
    return scale.reshape(shape).astype(np.float32), offset.reshape(shape).astype(np.float32)


def _lie_on_levels(pictures: Iterable[Array]) -> bool:
    """Whether all values are whole numbers from 0 to 255, and some no classes or counts."""
    highest = 0.0
    for levels in pictures:
        high = float(levels.max())
        if levels.min() < -NEAR or high > LEVELS + NEAR:
            return False
        if (np.abs(levels - np.rint(levels)) >= NEAR).any():
            return False
        highest = max(highest, high)
    return highest >= LEAST_LEVEL
