"""Latencies of networks that take turns, compared within each turn.

What slows a machine down for longer than a turn (another process, a lower clock) slows all networks
of that turn, and their ratios lose nothing by it. Ratios of quantiles, of each network's own times,
do: `docs/experiments.md`, "Comparing within each turn".
"""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

NORMAL_95 = 1.96


class PairedTimes:
    """What networks took in turns.

    Args:
        times: of each inference, in any unit, [turns, networks, inferences of a turn].
    """

    def __init__(self, times: NDArray[np.int64]) -> None:
        self._times = times

    @property
    def count(self) -> int:
        """The number of networks."""
        return int(self._times.shape[1])

    @property
    def fastest(self) -> float:
        """The shortest time of the first network."""
        return float(self._times[:, 0].min())

    @cached_property
    def quartile_interval(self) -> tuple[float, float, float]:
        """The lower quartile of the first network's times between the ends of its 95 % interval."""
        return _quantile_interval(self._times[:, 0].ravel(), 0.25)

    @property
    def ratios(self) -> list[float]:
        """What each network takes as a share of the first."""
        share = (self.count - 1) / self.count
        levels = [share * median for _, median, _ in self.levels]
        return [math.exp(level - levels[0]) for level in levels]

    @property
    def latencies(self) -> list[float]:
        """The first network's lower quartile, and what the others' ratios make of it."""
        _, first, _ = self.quartile_interval
        return [first * ratio for ratio in self.ratios]

    @property
    def widths(self) -> list[float]:
        """The width of the 95 % interval of each network's ratio to the others."""
        return [high - low for low, _, high in self.levels]

    @cached_property
    def levels(self) -> list[tuple[float, float, float]]:
        """Of each network the logarithm of its time less the others' mean, median over the turns.

        Between the ends of its 95 % interval; a turn counts by its fastest inference.
        """
        if self.count == 1:
            return [(0.0, 0.0, 0.0)]
        logs = np.log(self._times.min(axis=2))
        others = (logs.sum(axis=1, keepdims=True) - logs) / (self.count - 1)
        return [_quantile_interval(column, 0.5) for column in (logs - others).T]


def _quantile_interval(values: NDArray[np.number], share: float) -> tuple[float, float, float]:
    """Returns a quantile between the ends of its 95 % interval.

    They are order statistics, whatever the distribution (H. David and H. Nagaraja, "Order
    Statistics", 2003, section 7.1).
    """
    count = len(values)
    half = NORMAL_95 * math.sqrt(count * share * (1 - share))
    ordered = np.sort(values)
    low = max(0, math.floor(share * count - half))
    high = min(count - 1, math.ceil(share * count + half))
    return float(ordered[low]), float(np.quantile(ordered, share)), float(ordered[high])
