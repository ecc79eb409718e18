"""Pictures unlike the calibration samples, made from them, to see what happens beyond the ranges.

Ranges that fit the calibration pictures clip whatever goes beyond, and a layer that hardly costs
anything on those pictures can cost most of the error on others. Among ten ways to alter pictures,
quarters enlarged to the whole picture foretold best what layers cost on unseen ones; ranges served
unseen pictures best when they were chosen on enlarged quarters and brighter pictures too
(`benchmarks/unlike_pictures.py`, `benchmarks/quantizer_choices.py`, figures in
docs/experiments.md). INT4 weights that few pictures decide are fitted to enlarged quarters as well
(docs/rounding.md).
"""

from collections.abc import Callable, Sequence

import cv2
import numpy as np

from artifacts.synthetic_pictures import PICTURE_RANK
from compress.quantize.graph import Array

Samples = Sequence[dict[str, Array]]
BRIGHTER = 0.3
"""What is added to a picture, as a share of the range between its extremes."""


def make_unlike(samples: Samples) -> list[dict[str, Array]]:
    """Returns the samples, every other picture brighter and of the rest an enlarged quarter.

    As many as the samples; none where there is no picture.
    """
    return alter_pictures(
        samples,
        lambda picture, place: (
            _brighten(picture, place) if place % 2 else _enlarge(picture, place // 2)
        ),
    )


def enlarge_quarters(samples: Samples) -> list[dict[str, Array]]:
    """Returns a quarter of each picture, enlarged to its size: the next corner for each sample.

    Args:
        samples: input arrays by name; those of 4 dimensions and float type are pictures.

    Returns:
        as many samples; none where there is no picture.
    """
    return alter_pictures(samples, _enlarge)


def brighten(samples: Samples) -> list[dict[str, Array]]:
    """Returns the samples with brighter pictures; see `enlarge_quarters`."""
    return alter_pictures(samples, _brighten)


def alter_pictures(
    samples: Samples, change: Callable[[Array, int], Array]
) -> list[dict[str, Array]]:
    """Returns the samples with their pictures changed, and kept within the range of all.

    Args:
        samples: input arrays by name; those of 4 dimensions and float type are pictures.
        change: is given a picture and the place of its sample.

    Returns:
        as many samples; none where there is no picture.
    """
    names = [
        name
        for name, value in (samples[0].items() if len(samples) else ())
        if value.ndim == PICTURE_RANK and np.issubdtype(value.dtype, np.floating)
    ]
    if not names:
        return []
    altered = [dict(sample) for sample in samples]
    for name in names:
        pictures = [sample[name] for sample in samples]
        low, high = min(map(np.min, pictures)), max(map(np.max, pictures))
        for place, sample in enumerate(altered):
            changed = change(pictures[place], place)
            sample[name] = np.clip(changed, low, high).astype(pictures[place].dtype)
    return altered


def _enlarge(picture: Array, place: int) -> Array:
    height, width = picture.shape[2:]
    top, left = (height // 2) * (place % 2), (width // 2) * (place // 2 % 2)
    part = picture[:, :, top : top + -(-height // 2), left : left + -(-width // 2)]
    planes = part.reshape(-1, *part.shape[2:]).astype(np.float32)
    return np.stack([cv2.resize(plane, (width, height)) for plane in planes]).reshape(picture.shape)


def _brighten(picture: Array, place: int) -> Array:
    del place
    return np.asarray(picture + BRIGHTER * (picture.max() - picture.min()))
