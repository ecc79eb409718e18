"""The inputs with which a network is proven: such that something can be seen, and of two sizes."""

import math
from collections.abc import Callable

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


def widen_inputs(inputs: Inputs) -> Inputs:
    """Returns the inputs in float64, but for integers."""
    return tuple(value.double() if value.is_floating_point() else value for value in inputs)


def enliven_inputs(inputs: Inputs) -> Inputs:
    """Returns the inputs, with random numbers around those that are the same everywhere.

    With a black picture networks without biases answer 0, whatever leaves.
    """
    generator = torch.Generator().manual_seed(0)
    return tuple(_enliven(value, generator) for value in inputs)


def _enliven(value: Tensor, generator: torch.Generator) -> Tensor:
    if (
        not value.is_floating_point()
        or value.numel() < 2
        or bool((value != value.flatten()[0]).any())
    ):
        return value
    return value + torch.randn(value.shape, dtype=value.dtype, generator=generator)


def shrink_inputs(module: nn.Module, inputs: Inputs) -> Inputs | None:
    """Returns the inputs with smaller pictures, their upper left parts; all by the same factor.

    None where they are small, or where the network does not run with smaller ones or answers with
    tensors of other ranks or counts.

    Args:
        module: the network; it is not changed.
        inputs: its arguments.
    """
    sizes = [value.shape[-2:].numel() for value in inputs if value.ndim == _PICTURE_RANK]
    factor = max(1.0, math.sqrt(max(sizes, default=0) / _ENOUGH_POSITIONS))

    def shrink(picture: Tensor) -> Tensor:
        sides = (_MULTIPLE * math.ceil(side / factor / _MULTIPLE) for side in picture.shape[-2:])
        height, width = sides
        return picture[..., :height, :width]

    return _change_pictures(module, inputs, shrink)


def stretch_inputs(module: nn.Module, inputs: Inputs) -> Inputs | None:
    """Returns the inputs with pictures of twice the width, mirrored; None as `shrink_inputs`."""
    return _change_pictures(
        module, inputs, lambda picture: torch.cat([picture, picture.flip(-1)], dim=-1)
    )


def _change_pictures(
    module: nn.Module, inputs: Inputs, change: Callable[[Tensor], Tensor]
) -> Inputs | None:
    """Returns the inputs with other pictures; None where that is no use to the network."""
    changed = tuple(change(one) if one.ndim == _PICTURE_RANK else one for one in inputs)
    if all(one.shape == whole.shape for one, whole in zip(changed, inputs, strict=True)):
        return None
    try:
        is_alike = _list_ranks(module, changed) == _list_ranks(module, inputs)
    except InputError:
        return None
    return changed if is_alike else None


@torch.no_grad()
def _list_ranks(module: nn.Module, inputs: Inputs) -> list[int]:
    return [value.ndim for value in output_tensors(run_widely(share_values(module), inputs))]
