"""2:4 sparsity: of four neighbouring input channels' weights two are zero (Mishra et al., 2021).

NVIDIA's sparse tensor cores can use it from Ampere on. Whether they do, and whether it pays, shows
only when an engine is measured; nothing here claims a speed-up.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

SMALLEST = 256
"""Input and output channels below which sparse kernels were reported not to be chosen."""


@dataclass(frozen=True)
class SparseLayer:
    """A layer and whether 2:4 sparsity can be of use to it.

    Attributes:
        module: its name.
        inputs, outputs: C and K, channels per group.
        reason: why it was left dense; empty where it is sparse now.
    """

    module: str
    inputs: int
    outputs: int
    reason: str


def make_sparse(module: nn.Module, smallest: int = SMALLEST) -> list[SparseLayer]:
    """Zeroes the smaller two of every four weights of eligible layers, in place.

    Args:
        module: the network.
        smallest: fewest input and output channels of a layer that is made sparse.

    Returns:
        every convolution and linear layer, with the reason where it stays dense.
    """
    layers = []
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Conv2d | nn.Conv1d):
            weight = part.weight
            reason = _why_not(part, weight, smallest)
            layers.append(SparseLayer(name, weight.shape[1], weight.shape[0], reason))
            if not reason:
                with torch.no_grad():
                    weight.mul_(two_four_mask(weight))
    return layers


def _why_not(part: nn.Module, weight: Tensor, smallest: int) -> str:
    outputs, inputs = weight.shape[:2]
    if getattr(part, "groups", 1) > 1:
        return "grouped"
    if inputs % 4:
        return f"{inputs} input channels are no multiple of 4"
    if min(inputs, outputs) < smallest:
        return f"C={inputs}, K={outputs}: below {smallest}"
    return ""


def two_four_mask(weight: Tensor) -> Tensor:
    """Returns 1 for the larger two of every four along the input channels, 0 for the others.

    Args:
        weight: [K, C, ...] with C a multiple of 4.
    """
    moved = weight.detach().abs().movedim(1, -1)
    fours = moved.reshape(-1, 4)
    kept = torch.zeros_like(fours).scatter_(1, fours.topk(2, dim=1).indices, 1.0)
    return kept.reshape(moved.shape).movedim(-1, 1).to(weight.dtype)
