"""An observer that lost: ranges for pictures whose activations are larger than those seen.

Clipping what calibration never reached costs the small late tensors of a detector most. This rule
expects that a new picture's activations are those seen times a gain, log-normal about 1, and takes
the range with the least expected squared error, relative to the picture's power. Tensor by tensor
that is right; whether the outputs gain, `benchmarks.quantizer_choices` says.
"""

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from compress.quantize.observers.contract import ObservedTensor, OutputError
from compress.quantize.observers.mse import squared_errors
from compress.quantize.qparams import IntegerGrid, scales_for_ranges

FACTORS = np.concatenate([np.geomspace(0.02, 0.4, 20, endpoint=False), np.linspace(0.4, 2.5, 106)])
GAINS = 3


@dataclass(frozen=True, kw_only=True)
class GainSpread:
    """Expects the gain of an unseen picture.

    Attributes:
        sigma: spread of the gain's logarithm.
    """

    sigma: float = 0.15

    def choose_range(
        self,
        tensor: ObservedTensor,
        grid: IntegerGrid,
        *,
        symmetric: bool,
        output_error: OutputError | None = None,
    ) -> tuple[float, float]:
        """Returns the range with the least expected error, beyond what was seen where that pays."""
        del output_error
        low, high = tensor.ends
        if tensor.counts.sum() == 0:
            return low, high
        nodes, shares = hermegauss(GAINS)
        gains = np.exp(self.sigma * nodes)
        brighter = [
            ObservedTensor(low=gain * tensor.low, high=gain * tensor.high, counts=tensor.counts)
            for gain in gains
        ]

        def loss(low: float, high: float) -> float:
            ends = np.array([[low], [high]], np.float64)
            steps = scales_for_ranges(*ends, grid, symmetric=symmetric)
            errors = [squared_errors(item, *steps, grid)[0] for item in brighter]
            return float(np.dot(shares / gains**2, errors))

        factor = min(FACTORS[::-1], key=lambda f: loss(f * low, f * high))
        low, high = factor * low, factor * high
        if not symmetric and low < 0 < high:
            low *= min(FACTORS[::-1], key=lambda f: loss(f * low, high))
        return float(low), float(high)
