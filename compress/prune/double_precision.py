"""Runs a network in float64 wherever its code asks for float32."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from artifacts.module_run import run_module
from compress.prune.convolutions import CONVOLUTIONS
from compress.train.threads import use_threads

_GROUPS = 6
"""The place of the number of groups among a convolution's arguments."""


def run_widely(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """Runs a network; one in float64 makes all that its forward pass makes in float64 too.

    Code that says `x.float()` or `torch.linspace(0, 1, n)` would round to float32 in between, or
    fail with two types; equality could then be proven to seven digits only.

    Raises:
        InputError: it fails, see `run_module`.
    """
    values = chain(inputs, module.parameters())
    if not any(value.dtype == torch.float64 for value in values):
        return run_module(module, inputs)
    with _float64_by_default(), _WithoutFloat32():
        return run_module(module, inputs)


@contextmanager
def _float64_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _WithoutFloat32(TorchFunctionMode):
    """Reads float32 as float64 in whatever is called."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.float:
            return args[0].double()
        named = {name: _widen(value) for name, value in (kwargs or {}).items()}
        with use_threads(1) if _is_grouped(func, args, named) else nullcontext():
            return func(*map(_widen, args), **named)


def _is_grouped(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Returns whether this is a convolution in several groups.

    PyTorch computes it in float64 group by group and divides each anew among threads. Where other
    processes use the cores, these wait for each other at every group: a depthwise layer of 256
    channels took 2.9 s instead of 1 ms.
    """
    if func not in CONVOLUTIONS:
        return False
    groups = args[_GROUPS] if len(args) > _GROUPS else named.get("groups", 1)
    return bool(groups > 1)


def _widen(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
