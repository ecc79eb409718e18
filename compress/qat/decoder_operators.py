"""ONNX operators that compare, choose and place values, in torch: what decoders in a graph do."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from artifacts.errors import InputError
from compress.qat.layer_operators import Attributes, Values


def find_extreme(function: Callable[..., Tensor]) -> Callable[[Values, Attributes], Tensor]:
    """ArgMax and ArgMin: the first index where several are equal."""

    def find(values: Values, attributes: Attributes) -> Tensor:
        if attributes.get("select_last_index", 0):
            raise InputError("ArgMax or ArgMin with select_last_index", "without")
        keeps = bool(attributes.get("keepdims", 1))
        return function(values[0], dim=attributes.get("axis", 0), keepdim=keeps)

    return find


def take_top(values: Values, attributes: Attributes) -> tuple[Tensor, Tensor]:
    """TopK: the values and their indices."""
    x, count = values
    axis, is_largest = attributes.get("axis", -1), bool(attributes.get("largest", 1))
    found = x.topk(int(count), axis, is_largest, bool(attributes.get("sorted", 1)))
    return found.values, found.indices


def gather_elements(values: Values, attributes: Attributes) -> Tensor:
    """GatherElements: an index along one axis for each element."""
    x, indices = values
    axis = attributes.get("axis", 0)
    return torch.gather(x, axis, torch.remainder(indices, x.shape[axis]))


def gather_places(values: Values, attributes: Attributes) -> Any:
    """GatherND: slices of `x` at the places in the last axis of the indices."""
    x, indices = values
    if attributes.get("batch_dims", 0):
        raise InputError("GatherND with batch_dims", "without")
    return x[tuple(indices.unbind(-1))]


def scatter_places(values: Values, attributes: Attributes) -> Any:
    """ScatterND: a copy of `x` with slices replaced or added to."""
    x, indices, updates = values
    adds = _adds("ScatterND", attributes)
    return x.index_put(tuple(indices.unbind(-1)), updates, accumulate=adds)


def scatter_elements(values: Values, attributes: Attributes) -> Any:
    """ScatterElements: an index along one axis for each update."""
    x, indices, updates = values
    axis = attributes.get("axis", 0)
    indices = torch.remainder(indices, x.shape[axis])
    if _adds("ScatterElements", attributes):
        return x.scatter_add(axis, indices, updates)
    return x.scatter(axis, indices, updates)


def _adds(operator: str, attributes: Attributes) -> bool:
    reduction = attributes.get("reduction", b"none").decode()
    if reduction not in ("none", "add"):
        raise InputError(f"{operator} with the reduction {reduction}", "none or add")
    return bool(reduction == "add")


def sum_up(values: Values, attributes: Attributes) -> Any:
    """CumSum along one axis."""
    x, axis = values[0], int(values[1])
    is_reverse = bool(attributes.get("reverse", 0))
    if is_reverse:
        x = x.flip(axis)
    total = x.cumsum(axis)
    if attributes.get("exclusive", 0):
        total = total - x
    return total.flip(axis) if is_reverse else total


def keep_triangle(values: Values, attributes: Attributes) -> Any:
    """Trilu: the upper or lower triangle of matrices."""
    diagonal = int(values[1]) if len(values) > 1 and values[1] is not None else 0
    return values[0].triu(diagonal) if attributes.get("upper", 1) else values[0].tril(diagonal)


def sample_grid(values: Values, attributes: Attributes) -> Tensor:
    """GridSample of a picture [N, C, H, W] at places [N, H', W', 2] from -1 to 1."""
    mode = attributes.get("mode", b"linear").decode()
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    padding = attributes.get("padding_mode", b"zeros").decode()
    align = bool(attributes.get("align_corners", 0))
    sampled: Tensor = F.grid_sample(values[0], values[1], mode, padding, align)
    return sampled


def space_to_depth(values: Values, attributes: Attributes) -> Any:
    """SpaceToDepth: blocks of pixels become channels, block by block."""
    x, size = values[0], attributes["blocksize"]
    n, c, h, w = x.shape
    x = x.reshape(n, c, h // size, size, w // size, size).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * size**2, h // size, w // size)
