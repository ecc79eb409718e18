"""Adam with one second moment per channel: Adam-mini (Zhang et al., 2024)."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class AdamMini(torch.optim.Optimizer):
    """Divides the gradients of a channel by what they have in common, so their proportions stay.

    Adam moves each weight by about the learning rate, those whose gradient is noise too. Where
    weights are integers in the end every move may cost a wrong integer; here the weights that
    matter to the loss move, the others hardly do.

    Args:
        groups: weights, or groups of them as in torch's optimizers.
        lr: root of the mean square of a channel's moves, about.
        betas: of the first and the second moment.
        eps: added to the root of the second moment.
        weight_decay: decoupled, as in AdamW.
    """

    def __init__(
        self,
        groups: Iterable[Any],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Moves all weights that have a gradient."""
        if closure is not None:
            raise ValueError("AdamMini takes no closure")
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, group)

    def _move(self, weight: Tensor, group: dict[str, Any]) -> None:
        state, gradient = self.state[weight], weight.grad
        assert gradient is not None
        square = _channel_means(gradient.square())
        if not state:
            state["step"] = torch.zeros(())
            state["first"] = torch.zeros_like(weight)
            state["second"] = torch.zeros_like(square)
        state["step"] += 1
        decay_first, decay_second = group["betas"]
        step = float(state["step"])
        state["first"].lerp_(gradient, 1 - decay_first)
        state["second"].lerp_(square, 1 - decay_second)
        root = (state["second"] / (1 - decay_second**step)).sqrt_().add_(group["eps"])
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        rate = group["lr"] / (1 - decay_first**step)
        weight.sub_(rate * state["first"] / root)


def _channel_means(values: Tensor) -> Tensor:
    """Returns the mean over all axes but the first; vectors and single numbers as they are."""
    return values.mean(tuple(range(1, values.ndim)), keepdim=True) if values.ndim > 1 else values
