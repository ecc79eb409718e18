"""Names the numbers that a network's code computes from how many channels there are."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from compress.prune.double_precision import run_widely

_SCALERS = frozenset({"mul", "div", "pow", "mul_", "div_"})


@torch.no_grad()
def name_computed_scale(before: nn.Module, after: nn.Module, inputs: tuple[Tensor, ...]) -> str:
    """Names the first number by which two widths of a network scale otherwise.

    Code that divides by the root of a size (`q @ k / q.shape[1] ** 0.5`) scales all that is left
    otherwise as soon as a channel leaves.

    Args:
        before: the network.
        after: the narrower one, in the same order of operators.
        inputs: of both.

    Returns:
        "'div' by 4, then 3.87298"; empty where both scale by the same numbers.
    """
    runs = []
    for module in (before, after):
        with _Scales() as scales:
            run_widely(module, inputs)
        runs.append(scales.found)
    for (name, old), (other, new) in zip(*runs, strict=False):
        if name == other and old != new:
            return f"'{name}' by {old:g}, then {new:g}"
    return ""


class _Scales(TorchDispatchMode):
    """Remembers each product, quotient or power with a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, float]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._overloadpacket.__name__
        if name in _SCALERS and len(args) > 1:
            value = args[1]
            if isinstance(value, Tensor) and not value.ndim and value.device.type == "cpu":
                value = value.item()
            if isinstance(value, int | float):
                self.found.append((name, float(value)))
        return func(*args, **(kwargs or {}))
