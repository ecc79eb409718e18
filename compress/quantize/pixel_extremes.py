"""Ranges of what is computed from pixels one by one: as wide as pixels can be.

A camera's pixels have 256 levels, whatever the calibration pictures show. Pictures of a foggy road
hold no black; what is darker in the field would be clipped in front of the first layer, where all
outputs suffer. So the tensors that follow from single pixels (standardized, joined, sliced) are
surveyed on a black and a white picture too.
"""

from collections.abc import Collection, Sequence

import numpy as np

from artifacts.pixel_levels import find_extremes
from artifacts.samples import Samples
from compress.quantize.graph import Array, Graph
from compress.quantize.placement.movement import moved_inputs
from compress.quantize.survey import Survey, measure_growth, survey_tensors

POINTWISE = frozenset({"Add", "BatchNormalization", "Cast", "Div", "Identity", "Mul", "Neg", "Sub"})
"""What is monotone in each value where everything else that it reads is a constant."""
LEAST_GROWTH = 1.05
"""What the samples nearly reach they may choose themselves: ends that are rare may be clipped."""


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
    extremes = _find_extremes(samples)
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


def _find_extremes(samples: Sequence[dict[str, Array]]) -> tuple[dict[str, Array], ...]:
    """Returns two samples, black and white; none where it is not known what pixels can be.

    Samples may know; else pixels are told by their levels.
    """
    known = samples.extremes if isinstance(samples, Samples) else ()
    return known or find_extremes(samples)


def find_pixelwise(graph: Graph, pictures: Collection[str]) -> set[str]:
    """Returns the tensors each of whose values follows from one value of a picture, these too."""
    found = set(pictures)
    for node in graph.nodes:
        computed = graph.computed_inputs(node)
        if not computed or not found.issuperset(computed):
            continue
        is_pointwise = node.op_type in POINTWISE and len(computed) == 1
        if is_pointwise or moved_inputs(graph, node):
            found.update(node.output)
    return found
