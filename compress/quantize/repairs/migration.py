"""Moves resolution between activations and weights of products: SmoothQuant and AWQ.

Xiao et al., "SmoothQuant" (ICML 2023), equation 4: s_c = max|x_c|^a / max|w_c|^(1-a) takes outliers
out of the activations. Lin et al., "AWQ" (MLSys 2024), section 3.2: s_c = mean|x_c|^a gives the
weights that meet large activations more of a coarse grid. x_c is divided by s_c and the weights are
multiplied by it. Both are tried with several exponents; factors come from one part of the
calibration pictures, and have to lower the readers' measured output error on the others too.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compress.quantize.channel_survey import ChannelSurvey, SeenChannels
from compress.quantize.graph import Graph
from compress.quantize.layer_weights import choose_row_scales
from compress.quantize.placement import Placement
from compress.quantize.qparams import WeightGrids
from compress.quantize.repairs.linear_group import (
    LinearGroup,
    find_linear_groups,
    input_axis,
    list_divided,
    rescale_linear,
)
from compress.quantize.repairs.trial_rounding import round_activation, round_weight
from compress.quantize.side_by_side import map_ahead

EXPONENTS = (0.25, 0.5, 0.75)
LARGEST_FACTOR = 32.0
LEAST_GAIN = 0.97
HELD_OUT_EVERY = 3
JUDGED_OUTPUTS = 256
"""Of each layer, evenly spread, whose errors are measured."""

Real = NDArray[np.float64]


@dataclass(frozen=True)
class _Rows:
    """What a tensor holds, as rows of channels, [n, C], in two parts."""

    fit: NDArray[np.float32]
    held_out: NDArray[np.float32]


def migrate_scales(
    graph: Graph,
    survey: ChannelSurvey,
    placement: Placement,
    quantized: Collection[str],
    weight_grids: WeightGrids,
) -> list[str]:
    """Rescales channels in place where that lowers the measured error of the products behind them.

    See `ScaleRepair` for arguments and result.
    """
    groups = [group for group in find_linear_groups(graph) if set(group.readers) & set(quantized)]
    if not groups:
        return []
    seen = survey.look(graph, {group.tensor: group.axis for group in groups})
    lines = []
    for group in groups:
        names = ", ".join(group.readers)
        rows = _split(seen[group.tensor], len(survey.samples))
        gain, how, factors = _choose(graph, group, rows, placement, weight_grids)
        if factors is None:
            lines.append(f"left the input of {names} as it is: {how}")
        else:
            rescale_linear(graph, group, factors)
            survey.divide(list_divided(graph, group), factors, group.axis)
            lines.append(f"rescaled the input of {names} ({how}): error x {gain:.2f}")
    return lines


def _split(seen: SeenChannels, samples: int) -> _Rows:
    """Returns what was seen as rows, every third sample held out."""
    rows = np.ascontiguousarray(seen.values.T)
    is_held_out = np.arange(len(rows)) // (len(rows) // samples) % HELD_OUT_EVERY == 1
    held_out = rows[is_held_out]
    return _Rows(rows[~is_held_out], held_out if len(held_out) else rows)


def _choose(
    graph: Graph, group: LinearGroup, rows: _Rows, placement: Placement, grids: WeightGrids
) -> tuple[float, str, Real | None]:
    """Returns (error left on held-out rows, what or why not, factors or None)."""
    if not (np.isfinite(rows.fit).all() and rows.fit.any()):
        return 1.0, "it is 0 or not finite", None
    weights = {name: _as_rows(graph, name) for name in group.readers}
    products = _Products(rows, weights, placement, grids)
    candidates = _candidates(rows.fit, list(weights.values()))
    tried = [np.ones(group.channels), *(factors for _, factors in candidates)]
    before, *errors = map_ahead(products.measure, tried)
    best: tuple[float, str, Real | None] = (
        1.0,
        "no factors lower the error on held-out data",
        None,
    )
    for (how, factors), after in zip(candidates, errors, strict=True):
        shares = [new / max(old, 1e-30) for new, old in zip(after, before, strict=True)]
        if max(shares) < min(LEAST_GAIN, best[0]):
            best = (max(shares), how, factors)
    return best


def _as_rows(graph: Graph, name: str) -> Real:
    """Returns a product's weight as [out, in]."""
    node = graph.node(name)
    weight = graph.weights[node.input[1]].astype(np.float64)
    weight = weight.reshape(weight.shape[:2])
    return np.asarray(weight.T if input_axis(node) == 0 else weight)


def _candidates(rows: NDArray[np.float32], weights: list[Real]) -> list[tuple[str, Real]]:
    size = np.abs(rows)
    peaks, means = size.max(axis=0).astype(np.float64), size.mean(axis=0, dtype=np.float64)
    largest = np.max([np.abs(weight).max(axis=0) for weight in weights], axis=0)
    found = []
    for exponent in EXPONENTS:
        smooth = _positive(peaks) ** exponent / _positive(largest) ** (1 - exponent)
        found.append((f"SmoothQuant, exponent {exponent:g}", _bounded(smooth)))
        found.append((f"AWQ, exponent {exponent:g}", _bounded(_positive(means) ** exponent)))
    return found


def _positive(values: Real) -> Real:
    """Gives channels that are always 0 the smallest value of the others."""
    smallest = values[values > 0].min(initial=np.inf)
    return np.asarray(np.maximum(values, smallest if np.isfinite(smallest) else 1.0))


def _bounded(factors: Real) -> Real:
    """Returns factors around a geometric mean of 1, none beyond LARGEST_FACTOR."""
    centred = factors / np.exp(np.log(factors).mean())
    return np.asarray(np.clip(centred, 1 / LARGEST_FACTOR, LARGEST_FACTOR))


class _Products:
    """Layers that read a tensor, by some of their output channels.

    Args:
        rows: what the tensor holds.
        weights: [out, in] of each layer.
        placement: tells the integers of activations.
        grids: the integers of weights.
    """

    def __init__(
        self, rows: _Rows, weights: Mapping[str, Real], placement: Placement, grids: WeightGrids
    ) -> None:
        self._parts = (rows.fit, rows.held_out)
        self._placement, self._grids = placement, grids
        self._weights = {
            name: weight[:: -(-len(weight) // JUDGED_OUTPUTS)] for name, weight in weights.items()
        }
        self._wanted = {
            name: [part @ weight.T.astype(np.float32) for part in self._parts]
            for name, weight in self._weights.items()
        }

    def measure(self, factors: Real) -> list[float]:
        """Returns the squared output error on both parts of the rows.

        Those of the layers are added up, each relative to its signal.
        """
        inputs = [
            round_activation((part / factors).astype(np.float32), self._placement)
            for part in self._parts
        ]
        totals = [0.0 for _ in inputs]
        for name, weight in self._weights.items():
            rounded = round_weight(weight * factors, 0, self._grids.of(name), choose_row_scales)
            columns = rounded.T.astype(np.float32)
            for place, wanted in enumerate(self._wanted[name]):
                noise = _sum_squares(inputs[place] @ columns - wanted)
                totals[place] += noise / max(_sum_squares(wanted), 1e-30)
        return totals


def _sum_squares(values: NDArray[np.float32]) -> float:
    return float(np.square(values).sum(dtype=np.float64))
