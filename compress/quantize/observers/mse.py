"""The range with the least squared error."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from compress.quantize.observers.contract import ObservedTensor, OutputError
from compress.quantize.observers.factors import choose_factor
from compress.quantize.observers.unseen import reach_unseen
from compress.quantize.qparams import (
    IntegerGrid,
    QParams,
    qparams_for_range,
    scales_for_ranges,
)

Ranges = list[tuple[float, float]]
WIDENINGS = 11
MOST_UNEXPLAINED = 1.5


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError:
    """Weighs saturation against resolution: the least mean squared rounding error.

    The ends move together, in the proportion in which they were seen; a tensor that is asymmetric
    has its lower end searched once more on its own. Searched over 81 factors on the histogram, from
    1 down until clipping alone loses more than the best.

    Attributes:
        headroom: the best range is widened by this factor, though not beyond what was seen, and
            less where values on levels of their own would fall between the steps: other pictures
            reach farther than the few that were calibrated on. 1.1 was the best or nearly so on
            each of four splits of trained networks, see docs/experiments.md.
        reaches_unseen: widens the ranges of tensors of which calibration saw few values, also
            beyond what was seen: see `unseen`.
    """

    headroom: float = 1.1
    reaches_unseen: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.headroom <= 10:
            raise InputError(f"headroom {self.headroom:g}", "a factor from 1 to 10")

    def choose_range(
        self,
        tensor: ObservedTensor,
        grid: IntegerGrid,
        *,
        symmetric: bool,
        output_error: OutputError | None = None,
    ) -> tuple[float, float]:
        """Returns the best range."""
        del output_error
        low, high = tensor.ends
        if tensor.counts.sum() == 0:
            return low, high

        def errors(ranges: Ranges) -> NDArray[np.float64]:
            lows, highs = np.array(ranges, np.float64).T
            steps = scales_for_ranges(lows, highs, grid, symmetric=symmetric)
            return squared_errors(tensor, *steps, grid)

        def search(spread: Callable[[float], tuple[float, float]]) -> tuple[float, float]:
            factor = choose_factor(
                lambda factors: errors([spread(factor) for factor in factors]),
                lambda factor: clipped_error(
                    tensor, qparams_for_range(*spread(factor), grid, symmetric=symmetric)
                ),
            )
            return spread(factor)

        low, high = search(lambda factor: (factor * low, factor * high))
        if not symmetric and low < 0 < high:
            low, high = search(lambda factor: (factor * low, high))
        widened = self._widen(tensor, (float(low), float(high)), errors)
        reached = reach_unseen(tensor, widened) if self.reaches_unseen else widened
        near, far = errors([widened, reached])
        growth = (reached[1] - reached[0]) / max(widened[1] - widened[0], 1e-30)
        return reached if far <= MOST_UNEXPLAINED * near * growth**2 else widened

    def _widen(
        self,
        tensor: ObservedTensor,
        best: tuple[float, float],
        errors: Callable[[Ranges], NDArray[np.float64]],
    ) -> tuple[float, float]:
        """Returns the widest range, up to the headroom, whose error its wider steps explain.

        Rounding errors grow with the square of the steps, unless values that lie on levels of
        their own come to fall halfway between the steps. Pixels from 0 to 255 given as -1 to 1 do
        so in the whole range: 0 is a step but no level. Each is then off by half a step, and its
        direction is the runtime's.
        """
        lowest, highest = tensor.ends
        ranges = [
            (max(factor * best[0], lowest), min(factor * best[1], highest))
            for factor in np.linspace(self.headroom, 1.0, WIDENINGS).tolist()
        ]
        found = errors(ranges)
        widths = np.array([high - low for low, high in ranges])
        explained = found[-1] * np.square(widths / widths[-1]) if widths[-1] else found
        return ranges[int(np.argmax(found <= MOST_UNEXPLAINED * explained))]


def squared_errors(
    tensor: ObservedTensor,
    scales: NDArray[np.float64],
    zero_points: NDArray[np.float64],
    grid: IntegerGrid,
) -> NDArray[np.float64]:
    """Returns the mean squared rounding error of a tensor, from its histogram, [choices].

    Args:
        tensor: what was seen of it.
        scales: [choices].
        zero_points: [choices].
        grid: the integers that are allowed.
    """
    centres, counts = tensor.occupied
    scales, points = scales[:, None], zero_points[:, None]
    error = centres / scales
    np.rint(error, out=error)
    np.clip(error, grid.lowest - points, grid.highest - points, out=error)
    error *= scales
    error -= centres
    return np.asarray(np.square(error, out=error) @ counts / counts.sum())


def clipped_error(tensor: ObservedTensor, qparams: QParams) -> float:
    """Returns what is lost at least with any range within the one that is represented.

    Its ends may be off by half a step of either range: the zero point is an integer.
    """
    centres, counts = tensor.occupied
    above = np.maximum(centres - (qparams.high + qparams.scale), 0.0)
    below = np.maximum((qparams.low - qparams.scale) - centres, 0.0)
    return float(np.square(above + below) @ counts / counts.sum())
