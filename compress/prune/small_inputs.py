"""Smaller inputs of a network, on which what follows its channels is found in a fraction of time."""

import math

import torch
from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.module_copy import share_values
from compress.prune.analysis.api import output_tensors
from compress.prune.double_precision import run_widely

Inputs = tuple[Tensor, ...]
_PICTURE_RANK = 4
_ENOUGH_POSITIONS = 128 * 128
"""Height times width that a network is tried with where it takes them."""
_MULTIPLE = 32
"""Of height and width: networks halve them five times."""


def shrink_inputs(module: nn.Module, inputs: Inputs) -> Inputs | None:
    """Returns the inputs with smaller pictures, their upper left parts; all by the same factor.

    None where they are small, or where the network does not run with smaller ones or answers with
    tensors of other ranks or counts.

    Args:
        module: the network; it is not changed.
        inputs: its arguments.
    """
    small = tuple(_shrink(value, _find_factor(inputs)) for value in inputs)
    if all(value.shape == whole.shape for value, whole in zip(small, inputs, strict=True)):
        return None
    try:
        is_alike = _list_ranks(module, small) == _list_ranks(module, inputs)
    except InputError:
        return None
    return small if is_alike else None


def _find_factor(inputs: Inputs) -> float:
    sizes = [value.shape[-2:].numel() for value in inputs if value.ndim == _PICTURE_RANK]
    return max(1.0, math.sqrt(max(sizes, default=0) / _ENOUGH_POSITIONS))


def _shrink(value: Tensor, factor: float) -> Tensor:
    if value.ndim != _PICTURE_RANK:
        return value
    height, width = (_MULTIPLE * math.ceil(side / factor / _MULTIPLE) for side in value.shape[-2:])
    return value[..., :height, :width]


@torch.no_grad()
def _list_ranks(module: nn.Module, inputs: Inputs) -> list[int]:
    return [value.ndim for value in output_tensors(run_widely(share_values(module), inputs))]
