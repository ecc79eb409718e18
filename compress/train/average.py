"""The moving average of a network's weights, which is steadier than the weights themselves."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


class MovingAverage:
    """Averages weights and statistics with exponentially falling shares.

    Args:
        weights: the values to start from; sharded ones stay sharded.
        decay: share of the old average in the new one, after a start that follows faster.
    """

    def __init__(self, weights: Mapping[str, Tensor], decay: float) -> None:
        self.decay = decay
        self.values = {name: value.detach().clone() for name, value in weights.items()}

    @torch.no_grad()
    def update(self, weights: Mapping[str, Tensor], step: int) -> None:
        """Moves the average towards `weights`; `step` counts from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, value in self.values.items():
            old, new = local_part(value), local_part(weights[name].detach())
            if old.is_floating_point():
                old.lerp_(new, 1 - decay)
            else:
                old.copy_(new)

    def gather(self) -> dict[str, Tensor]:
        """Returns the whole average on the CPU; every process has to call it."""
        return gather_weights(self.values)

    @torch.no_grad()
    def restore(self, values: Mapping[str, Tensor]) -> None:
        """Takes over a whole average, see `gather`."""
        for name, value in self.values.items():
            if isinstance(value, DTensor):
                from torch.distributed.tensor import distribute_tensor

                whole = values[name].to(value.device)
                value.copy_(distribute_tensor(whole, value.device_mesh, value.placements))
            else:
                value.copy_(values[name])


def gather_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns whole copies on the CPU; every process has to call it."""
    whole = (
        (name, value.full_tensor() if isinstance(value, DTensor) else value)
        for name, value in weights.items()
    )
    return {name: value.detach().cpu().clone() for name, value in whole}


def local_part(value: Tensor) -> Tensor:
    """Returns this process's part of a sharded tensor; others as they are."""
    return value.to_local() if isinstance(value, DTensor) else value
