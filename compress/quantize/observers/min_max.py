"""The whole range that was seen."""

from dataclasses import dataclass

from compress.quantize.observers.contract import ObservedTensor, OutputError
from compress.quantize.qparams import IntegerGrid


@dataclass(frozen=True, kw_only=True)
class MinMax:
    """Covers every value: nothing saturates, and one outlier widens every step."""

    def choose_range(
        self,
        tensor: ObservedTensor,
        grid: IntegerGrid,
        *,
        symmetric: bool,
        output_error: OutputError | None = None,
    ) -> tuple[float, float]:
        """Returns the extremes, widened to hold 0."""
        del grid, symmetric, output_error
        return tensor.ends
