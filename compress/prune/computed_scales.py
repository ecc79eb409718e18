"""Finds the numbers that a network's code computes from how many channels there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from compress.prune.analysis.plain_operators import plain_operators
from compress.prune.analysis.running_modules import follow_modules
from compress.prune.double_precision import run_widely

_SCALERS = frozenset({"mul", "div", "pow", "mul_", "div_"})


@dataclass(frozen=True)
class Scale:
    """A product, quotient or power with a plain number.

    Attributes:
        operator: its name.
        value: the number.
        place: name of the innermost module that was running.
    """

    operator: str
    value: float
    place: str


def find_scales(module: nn.Module, inputs: tuple[Tensor, ...]) -> list[Scale]:
    """Returns all plain numbers by which a network scales, in the order of one run.

    Raises:
        InputError: it does not run.
    """
    scales = _Scales()
    with plain_operators(), follow_modules(module, scales.stack), scales:
        run_widely(module, inputs)
    return scales.found


def name_changed_scale(before: Sequence[Scale], after: Sequence[Scale]) -> str:
    """Names the first number by which two widths of a network scale otherwise.

    Code that divides by the root of a size (`q @ k / q.shape[1] ** 0.5`) scales all that is left
    otherwise as soon as a channel leaves.

    Returns:
        "'div' by 4, then 3.87298"; empty where both scale by the same numbers.
    """
    for old, new in zip(before, after, strict=False):
        if old.operator == new.operator and old.value != new.value:
            return f"'{old.operator}' by {old.value:g}, then {new.value:g}"
    return ""


class _Scales(TorchDispatchMode):
    """Remembers each product, quotient or power with a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Scale] = []
        self.stack: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._overloadpacket.__name__
        if name in _SCALERS and len(args) > 1:
            value = args[1]
            if isinstance(value, Tensor) and not value.ndim and value.device.type == "cpu":
                value = value.item()
            if isinstance(value, int | float):
                place = self.stack[-1] if self.stack else ""
                self.found.append(Scale(name, float(value), place))
        return func(*args, **(kwargs or {}))
