"""Ways to alter calibration pictures: what might stand for pictures that nobody has seen yet."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from artifacts.synthetic_pictures import draw_pictures
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.stress import (
    alter_pictures,
    brighten,
    enlarge_quarters,
    make_unlike,
)
from compress.quantize.survey import list_ranged, survey_tensors

Picture = NDArray[np.float32]
Samples = list[dict[str, Picture]]
IN_TURN = "brighter, or a quarter enlarged, in turn (the default)"


def _contrast(picture: Picture, place: int) -> Picture:
    return (picture - picture.mean()) * 1.6 + picture.mean()


def _darker(picture: Picture, place: int) -> Picture:
    return picture.min() + 0.4 * (picture - picture.min())


def _synthetic(picture: Picture, place: int) -> Picture:
    drawn = draw_pictures(picture.shape, np.random.default_rng(place))
    return picture.mean() + picture.std() * drawn


def _mix(samples: Samples) -> Samples:
    (name,) = samples[0]

    def mix(picture: Picture, place: int) -> Picture:
        return (picture + samples[(place + 3) % len(samples)][name]) / 2

    return alter_pictures(samples, mix)


def _invert(samples: Samples) -> Samples:
    (name,) = samples[0]
    pictures = np.stack([sample[name] for sample in samples])
    ends = pictures.min() + pictures.max()
    return alter_pictures(samples, lambda picture, place: ends - picture)


ALTERED: dict[str, Callable[[Samples], Samples]] = {
    "the calibration pictures": lambda samples: samples,
    "contrast 1.6": partial(alter_pictures, change=_contrast),
    "brighter": brighten,
    "darker": partial(alter_pictures, change=_darker),
    "upside down": partial(alter_pictures, change=lambda picture, place: picture[:, :, ::-1]),
    "quarters, enlarged": enlarge_quarters,
    "channels swapped": partial(alter_pictures, change=lambda picture, place: picture[:, ::-1]),
    "pairs mixed": _mix,
    "random pictures": partial(alter_pictures, change=_synthetic),
    "negatives": _invert,
    IN_TURN: make_unlike,
}


def survey_with(prepared: PreparedNetwork, samples: Samples, *altered: str) -> None:
    """Chooses ranges anew: on samples, and on what becomes of them when altered."""
    pictures = [*samples, *(sample for name in altered for sample in ALTERED[name](list(samples)))]
    prepared.survey.clear()
    ranged = list_ranged(prepared.graph, prepared.quantized)
    prepared.survey.update(survey_tensors(prepared.graph, ranged, pictures))
