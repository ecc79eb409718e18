"""Ranges of what is computed from pixels one by one: as wide as pixels can be.

A camera's pixels have 256 levels, whatever the calibration pictures show. Pictures of a foggy road
hold no black; what is darker in the field would be clipped in front of the first layer, where all
outputs suffer. So the tensors that follow from single pixels (standardized, joined, sliced) are
surveyed on a black and a white picture too.
"""

from collections.abc import Collection, Sequence

import numpy as np

from artifacts.samples import Samples, pick_evenly
from artifacts.synthetic_pictures import PICTURE_RANK
from compress.quantize.graph import Array, Graph
from compress.quantize.placement.movement import moved_inputs
from compress.quantize.survey import Survey, measure_growth, survey_tensors

POINTWISE = frozenset({"Add", "BatchNormalization", "Cast", "Div", "Identity", "Mul", "Neg", "Sub"})
"""What is monotone in each value where everything else that it reads is a constant."""
FEW = 4
"""Samples that pixels are told by."""
LEAST_GROWTH = 1.05
"""What the samples nearly reach they may choose themselves: ends that are rare may be clipped."""
LEVELS = 255.0
LEAST_LEVEL = 128.0
"""Whole numbers that stay below are classes or counts rather than pixels."""
NEAR = 1e-3
"""How far from a level a pixel may be, as a share of a step: they were divided in float32."""


def reach_pixel_extremes(
    survey: Survey, graph: Graph, samples: Sequence[dict[str, Array]], most_growth: float
) -> None:
    """Widens what was seen of tensors that follow from single pixels to all that these can be.

    Args:
        survey: what was seen of the network's tensors; it learns more.
        graph: the network.
        samples: those surveyed.
        most_growth: ranges that would become wider by more are left alone, as are those that
            hardly would.
    """
    extremes = find_extremes(samples)
    if not extremes:
        return
    black, white = extremes
    varied = [name for name in black if not np.array_equal(black[name], white[name])]
    pixelwise = find_pixelwise(graph, varied)
    reached = survey_tensors(graph, [name for name in survey if name in pixelwise], extremes)
    growths = measure_growth(survey, reached)
    for name, seen in reached.items():
        if LEAST_GROWTH < growths[name] <= most_growth:
            survey[name].extend(seen)


def find_extremes(samples: Sequence[dict[str, Array]]) -> tuple[dict[str, Array], ...]:
    """Returns two samples, black and white; none where it is not known what pixels can be.

    Samples may know; else pixels are told by their levels, 0 to 255 or as many from 0 to 1.
    """
    known = samples.extremes if isinstance(samples, Samples) else ()
    if known:
        return known
    few = pick_evenly(samples, FEW)
    highest = {
        name: white
        for name in few[0]
        if (white := _find_white([sample[name] for sample in few])) is not None
    }
    if not highest:
        return ()
    return tuple(
        few[0] | {name: np.full_like(few[0][name], share * top) for name, top in highest.items()}
        for share in (0.0, 1.0)
    )


def find_pixelwise(graph: Graph, pictures: Collection[str]) -> set[str]:
    """Returns the tensors each of whose values follows from one value of a picture, these too."""
    found = set(pictures)
    for node in graph.nodes:
        computed = [name for name in node.input if name and name not in graph.weights]
        if not computed or not found.issuperset(computed):
            continue
        is_pointwise = node.op_type in POINTWISE and len(computed) == 1
        if is_pointwise or moved_inputs(graph, node):
            found.update(node.output)
    return found


def _find_white(pictures: Sequence[Array]) -> float | None:
    """Returns the greatest value of a pixel, None where these are no pixels that are known."""
    if pictures[0].ndim < PICTURE_RANK or pictures[0].dtype.kind != "f":
        return None
    low = min(float(picture.min()) for picture in pictures)
    high = max(float(picture.max()) for picture in pictures)
    for white in (1.0, LEVELS):
        is_within = low >= 0 and high <= white and high * LEVELS / white >= LEAST_LEVEL
        if is_within and all(_lies_on_levels(picture * (LEVELS / white)) for picture in pictures):
            return white
    return None


def _lies_on_levels(levels: Array) -> bool:
    return bool((np.abs(levels - np.rint(levels)) < NEAR).all())
