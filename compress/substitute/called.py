"""Activations that a network calls as functions, which no edit of a checkpoint can replace."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from artifacts.wording import name_some
from compress.substitute.candidates import kind_of

_KINDS = {
    "silu": "silu",
    "hardswish": "hard-swish",
    "gelu": "gelu",
    "_prelu_kernel": "prelu",
    "prelu": "prelu",
}
"""ATen's operators and the kind of each, without the underscore of those that work in place."""
_MOST_PLACES = 3
_GATES = {"sigmoid": "silu", "hardsigmoid": "hard-swish"}
"""What a value times this function of itself is."""


def find_called(module: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, tuple[str, ...]]:
    """Returns the activations that are called in `forward`: per kind, the modules that call them.

    A name comes once for each call; "" is the network itself. Those inside of modules that
    `find_candidates` finds are not listed.

    Args:
        module: the network, in evaluation mode.
        inputs: its arguments.
    """
    watch = _Watch()
    handles = []
    for name, part in module.named_modules():
        handles.append(part.register_forward_pre_hook(watch.enter(name, part), prepend=True))
        handles.append(part.register_forward_hook(watch.leave, always_call=True))
    try:
        with torch.no_grad(), watch:
            module(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return {kind: tuple(names) for kind, names in watch.found.items()}


class _Watch(TorchDispatchMode):
    """Notes activations, and where they were called."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self._stack: list[tuple[str, bool]] = []
        self._gates = WeakTensorKeyDictionary()

    def enter(self, name: str, part: nn.Module) -> Any:
        """Returns a hook that notes that a module runs."""

        def hook(*_: Any) -> None:
            is_inside = bool(self._stack) and self._stack[-1][1]
            self._stack.append((name, is_inside or kind_of(part) is not None))

        return hook

    def leave(self, *_: Any) -> None:
        """Notes that the innermost module is done."""
        self._stack.pop()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._overloadpacket.__name__.removesuffix("_")
        kind = _KINDS.get(name) or self._multiplied(name, args)
        if kind is not None and self._stack and not self._stack[-1][1]:
            self.found.setdefault(kind, []).append(self._stack[-1][0])
        out = func(*args, **(kwargs or {}))
        if name in _GATES:
            self._gates[out] = (args[0], _GATES[name])
        return out

    def _multiplied(self, name: str, args: tuple[Any, ...]) -> str | None:
        """Returns the kind of x * sigmoid(x); None for any other operator."""
        if name != "mul":
            return None
        for gate, other in (args[:2], args[1::-1]):
            source, kind = self._gates.get(gate, (None, None)) if _is_tensor(gate) else (None, None)
            if source is not None and source is other:
                return str(kind)
        return None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def describe_called(called: Mapping[str, tuple[str, ...]]) -> str:
    """Returns how many of which kind are called, and where, for a message."""
    parts = []
    for kind, names in called.items():
        places = [f"'{name}'" if name else "the network" for name in dict.fromkeys(names)]
        parts.append(f"{len(names)} {kind} in {name_some(places, _MOST_PLACES)}")
    return "; ".join(parts)
