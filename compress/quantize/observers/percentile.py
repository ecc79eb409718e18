"""The range without its farthest values."""

from dataclasses import dataclass

import numpy as np

from artifacts.errors import InputError
from compress.quantize.observers.contract import ObservedTensor, OutputError
from compress.quantize.qparams import IntegerGrid


@dataclass(frozen=True, kw_only=True)
class Percentile:
    """Covers the given percentage of the values; the rest saturates.

    Attributes:
        percent: of the values, in (50, 100]; a symmetric tensor counts absolute values.
    """

    percent: float = 99.99

    def __post_init__(self) -> None:
        if not 50 < self.percent <= 100:
            raise InputError(
                f"percentile {self.percent:g}", "a percentage above 50 and at most 100, as 99.99"
            )

    def choose_range(
        self,
        tensor: ObservedTensor,
        grid: IntegerGrid,
        *,
        symmetric: bool,
        output_error: OutputError | None = None,
    ) -> tuple[float, float]:
        """Returns the range that holds `percent` of the values, widened to hold 0."""
        del grid, output_error
        total = int(tensor.counts.sum())
        if total == 0:
            return tensor.ends
        centres, counts = tensor.centres, tensor.counts
        needed = np.ceil(total * self.percent / 100)
        if symmetric:
            order = np.argsort(np.abs(centres), kind="stable")
            position = int(np.searchsorted(np.cumsum(counts[order]), needed))
            reach = float(np.abs(centres[order[min(position, len(order) - 1)]]))
            return max(tensor.ends[0], -reach), min(tensor.ends[1], reach)
        tail = total - np.ceil((total + needed) / 2)
        seen = np.cumsum(counts)
        low = float(centres[int(np.searchsorted(seen, tail, side="right"))])
        high = float(centres[min(int(np.searchsorted(seen, total - tail)), len(centres) - 1)])
        return min(low, 0.0), max(high, 0.0)
