"""Finds the factors by which a quantizer has rescaled the channels of a layer's float weights.

Cross-layer equalization and migration multiply a weight by one factor per output channel and one
per input channel before it is rounded. A Q/DQ file does not tell them; rounded and float weights
together do, since a channel has many weights and two factors.
"""

import torch
from torch import Tensor

FEWEST_WEIGHTS = 16
"""Of fewer weights a channel's factor says more of their rounding than of what was done to it."""
_ROUNDS = 8


def rescale_alike(weights: Tensor, rounded: Tensor, groups: int = 1) -> Tensor:
    """Returns `weights` times the factors per channel of both axes that come closest to `rounded`.

    Alternating least squares, as both kinds of factors are linear in each other.

    Args:
        weights: float, [out, in / groups, ...] (ConvTranspose: [in, out / groups, ...]).
        rounded: of the same shape, in steps of each output channel or block.
        groups: of the convolution; each has factors of its own.
    """
    first, second = weights.shape[:2]
    apart = weights.reshape(groups, first // groups, second, -1)
    wanted = rounded.reshape(apart.shape)
    fitted = apart
    for _ in range(_ROUNDS):
        for axis in (1, 2):
            others = [at for at in (1, 2, 3) if at != axis]
            if apart[0].numel() // apart.shape[axis] >= FEWEST_WEIGHTS:
                energy = fitted.square().sum(others, keepdim=True)
                shared = (fitted * wanted).sum(others, keepdim=True)
                factors = torch.where(energy > 0, shared / energy, torch.ones_like(energy))
                fitted = fitted * factors
    return fitted.reshape(weights.shape)
