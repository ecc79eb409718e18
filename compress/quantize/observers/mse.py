"""The range with the least squared error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from compress.quantize.observers.contract import ObservedTensor, OutputError
from compress.quantize.observers.factors import choose_factor
from compress.quantize.observers.unseen import reach_unseen
from compress.quantize.qparams import IntegerGrid, QParams, qparams_for_range

WIDENINGS = 11
MOST_UNEXPLAINED = 1.5


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError:
    """Weighs saturation against resolution: the least mean squared rounding error.

    The ends move together, in the proportion in which they were seen; a tensor that is asymmetric
    has its lower end searched once more on its own. Searched over 81 factors on the histogram.

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
        low, high = min(tensor.low, 0.0), max(tensor.high, 0.0)
        if tensor.counts.sum() == 0:
            return low, high

        def errors(ranges: list[tuple[float, float]]) -> NDArray[np.float64]:
            choices = [qparams_for_range(*ends, grid, symmetric=symmetric) for ends in ranges]
            return squared_errors(tensor, choices)

        factor = choose_factor(lambda factors: errors([(f * low, f * high) for f in factors]))
        low, high = factor * low, factor * high
        if not symmetric and low < 0 < high:
            low *= choose_factor(lambda factors: errors([(f * low, high) for f in factors]))
        widened = self._widen(tensor, (float(low), float(high)), errors)
        reached = reach_unseen(tensor, widened) if self.reaches_unseen else widened
        near, far = errors([widened, reached])
        growth = (reached[1] - reached[0]) / max(widened[1] - widened[0], 1e-30)
        return reached if far <= MOST_UNEXPLAINED * near * growth**2 else widened

    def _widen(
        self,
        tensor: ObservedTensor,
        best: tuple[float, float],
        errors: Callable[[list[tuple[float, float]]], NDArray[np.float64]],
    ) -> tuple[float, float]:
        """Returns the widest range, up to the headroom, whose error its wider steps explain.

        Rounding errors grow with the square of the steps, unless values that lie on levels of
        their own come to fall halfway between the steps. Pixels from 0 to 255 given as -1 to 1 do
        so in the whole range: 0 is a step but no level. Each is then off by half a step, and its
        direction is the runtime's.
        """
        lowest, highest = min(tensor.low, 0.0), max(tensor.high, 0.0)
        ranges = [
            (max(factor * best[0], lowest), min(factor * best[1], highest))
            for factor in np.linspace(self.headroom, 1.0, WIDENINGS).tolist()
        ]
        found = errors(ranges)
        widths = np.array([high - low for low, high in ranges])
        explained = found[-1] * np.square(widths / widths[-1]) if widths[-1] else found
        return ranges[int(np.argmax(found <= MOST_UNEXPLAINED * explained))]


def squared_errors(tensor: ObservedTensor, choices: Sequence[QParams]) -> NDArray[np.float64]:
    """Returns [choices], the mean squared rounding error of a tensor, from its histogram."""
    centres, counts = tensor.occupied
    scales, points, lowest, highest = (
        np.array(values, np.float64)[:, None]
        for values in zip(
            *((q.scale, q.zero_point, q.grid.lowest, q.grid.highest) for q in choices),
            strict=True,
        )
    )
    error = centres / scales
    np.rint(error, out=error)
    np.clip(error, lowest - points, highest - points, out=error)
    error *= scales
    error -= centres
    return np.asarray(np.square(error, out=error) @ counts / counts.sum())
