"""The rule that serves the layer best, tensor by tensor."""

from dataclasses import dataclass

from artifacts.errors import InputError
from compress.quantize.observers.contract import ObservedTensor, Observer, OutputError
from compress.quantize.observers.entropy import Entropy
from compress.quantize.observers.min_max import MinMax
from compress.quantize.observers.mse import MeanSquaredError
from compress.quantize.observers.percentile import Percentile
from compress.quantize.qparams import IntegerGrid

CANDIDATES: tuple[Observer, ...] = (
    MeanSquaredError(),
    MeanSquaredError(headroom=1.0),
    MeanSquaredError(headroom=1.3),
    MinMax(),
    Percentile(),
    Entropy(),
)


@dataclass(frozen=True, kw_only=True)
class ByOutputError:
    """Tries several rules and keeps the one whose range gives the layer's output the least error.

    A squared rounding error weighs every value alike; the layer that reads them does not. Where no
    layer can be asked, the first candidate decides.

    Attributes:
        candidates: the rules; on a tie the earlier one is kept.
    """

    candidates: tuple[Observer, ...] = CANDIDATES

    def __post_init__(self) -> None:
        if not self.candidates:
            raise InputError("there are no candidates", "at least one observer")

    def choose_range(
        self,
        tensor: ObservedTensor,
        grid: IntegerGrid,
        *,
        symmetric: bool,
        output_error: OutputError | None = None,
    ) -> tuple[float, float]:
        """Returns the range of the best candidate."""
        ranges = [item.choose_range(tensor, grid, symmetric=symmetric) for item in self.candidates]
        if output_error is None:
            return ranges[0]
        return min(dict.fromkeys(ranges), key=output_error)
