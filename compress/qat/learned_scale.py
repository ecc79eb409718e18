"""Rounding that lets gradients through, and scales that learn.

Learned step size quantization (LSQ; Esser et al., 2020): with q = clip(round(x / s)) and the
rounding taken as the identity going backwards, d(q s)/ds is q - x/s inside the grid and the limit
outside (equation 3), which is what automatic differentiation of the two nodes gives by itself. LSQ
also divides the gradient by sqrt(values · highest integer) (section 2.2); Adam divides every
gradient by its own size, so that is left out.
"""

from typing import Any

import torch
from torch import Tensor, nn

Limit = int | Tensor
"""Of all values, or of each."""


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return torch.round(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def round_through(x: Tensor) -> Tensor:
    """Rounds halves to even, as ONNX does; the gradient passes unchanged."""
    rounded: Tensor = _Round.apply(x)
    return rounded


class _Quantize(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, steps: Tensor, low: Limit, high: Limit) -> Tensor:
        context.save_for_backward((steps > low) & (steps < high))
        return torch.round(steps).clamp(low, high)  # type: ignore[arg-type]

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        (is_inside,) = context.saved_tensors
        return gradients[0] * is_inside, None, None


def quantize_through(steps: Tensor, low: Limit, high: Limit) -> Tensor:
    """Rounds to integers from `low` to `high`; the gradient passes where `steps` lies between them.

    Written out, as it is not torch.clamp's of the rounded steps: at the limits that passed the
    gradient on before torch 2.15 and stops it since, and a weight of 4 bits is there often.
    """
    rounded: Tensor = _Quantize.apply(steps, low, high)
    return rounded


class LearnedScale(nn.Module):
    """A scale that starts at a given value and stays above 0: s = s0 exp(rate · raw).

    Args:
        start: s0, float32 of any shape.
        rate: of the logarithm, beside the learning rate.
        is_learned: a fixed scale has no weights.
    """

    def __init__(self, start: Tensor, rate: float, *, is_learned: bool = True) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("start", start.detach().clone(), persistent=False)
        self.start: Tensor
        raw = torch.zeros_like(start)
        self.raw = nn.Parameter(raw) if is_learned and rate > 0 else None

    def growth(self) -> Tensor:
        """Returns s / s0, exactly 1 at the start."""
        if self.raw is None:
            return torch.ones_like(self.start)
        return torch.exp(self.rate * self.raw)

    def forward(self) -> Tensor:
        """Returns s."""
        return self.start * self.growth()
