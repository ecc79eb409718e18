"""Weights of the heads' losses, found while training."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

FORGETTING = 0.05
"""Share of the newest loss in the running level."""
LARGEST_GROWTH = 100.0
"""A loss is never scaled up by more than this beyond its first weight."""


class UncertaintyBalance(nn.Module):
    """Divides each loss by its own running level, so that no head is drowned by another.

    Uncertainty weighting (Kendall et al., 2018) minimises the sum of exp(-s) L + s over s as well;
    for a given L the best s is log L, where L counts 1 / L. Taking s from the running mean of L
    instead of learning it needs no learning rate of its own, and gives every head the same relative
    improvement whatever the units of its loss.

    Args:
        names: of the losses.
    """

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.register_buffer("levels", torch.zeros(len(self.names)))
        self.register_buffer("floors", torch.zeros(len(self.names)))
        self.levels: Tensor
        self.floors: Tensor

    @torch.no_grad()
    def start(self, losses: Mapping[str, float], floors: Mapping[str, float] | None = None) -> None:
        """Sets the levels to the losses before the first step.

        Args:
            losses: before the first step.
            floors: smallest divisors of the losses, for those that have one.
        """
        values = torch.tensor([max(losses[name], 1e-8) for name in self.names])
        given = torch.tensor([(floors or {}).get(name, 0.0) for name in self.names])
        self.levels.copy_(values)
        self.floors.copy_(torch.maximum(values / LARGEST_GROWTH, given))

    def forward(self, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the weighted losses; while training, the levels follow them."""
        values = torch.stack([losses[name] for name in self.names])
        if self.training:
            with torch.no_grad():
                newest = values.detach().float().nan_to_num()
                self.levels.lerp_(newest, FORGETTING)
        weighted = values / torch.maximum(self.levels, self.floors).clone()
        return dict(zip(self.names, weighted.unbind(), strict=True))
