"""Operators without a rule are tried: do they treat the channels of an axis one by one?

An operator that does gives, on some channels of its operands, the results of those channels. So
ids pass through whatever keeps channels apart (RoIAlign, writing into a grid by indices, a median
over positions), and nothing has to be known of it.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from compress.prune.analysis.channel_sets import Ids
from compress.prune.analysis.trace import AxisIds
from compress.prune.analysis.tracer import Call, ChannelTracer

Place = tuple[Tensor, int]
"""An operand and one of its axes."""
_MOST_TRIALS = 32


def try_operator(tracer: ChannelTracer, call: Call) -> None:
    """Ties the axes of operands that an operator treats channel by channel; keeps all others."""
    operands = list({id(tensor): tensor for tensor in call.tensors}.values())
    open_places = _open_places(tracer, operands)
    found: list[AxisIds] = [{} for _ in call.outputs]
    whole = _run(call, {})
    while open_places:
        first = open_places[0]
        chosen, axes = next(_matches(call, whole, open_places), ((first,), None))
        rows = [tracer.ids(tensor)[axis] for tensor, axis in chosen]
        open_places = [one for one in open_places if not any(_is_same(one, two) for two in chosen)]
        if axes is None or any(axis in own for axis, own in zip(axes, found, strict=True)):
            tracer.trace.sets.freeze(rows[0], f"{_name(tracer, call)} does not keep them apart")
            continue
        for row in rows[1:]:
            tracer.trace.sets.tie(rows[0], row, f"{_name(tracer, call)} combines them")
        for axis, own in zip(axes, found, strict=True):
            if axis is not None:
                own[axis] = rows[0]
    for out, own in zip(call.outputs, found, strict=True):
        tracer.set_ids(out, own)


def _open_places(tracer: ChannelTracer, operands: list[Tensor]) -> list[Place]:
    """Returns where operands have channels that might leave; the only one of an axis stays."""
    places = []
    for tensor in operands:
        for axis, ids in tracer.ids(tensor).items():
            if ids.size > 1:
                places.append((tensor, axis))
            else:
                tracer.trace.sets.freeze(ids, "the only channel of its tensor")
    return places


def _name(tracer: ChannelTracer, call: Call) -> str:
    return f"'{call.name}' in '{tracer.place}'"


def _is_same(first: Place, second: Place) -> bool:
    return first[0] is second[0] and first[1] == second[1]


def _matches(
    call: Call, whole: list[Tensor], places: list[Place]
) -> Iterator[tuple[tuple[Place, ...], list[int | None]]]:
    """Yields the first place with those of other operands that lose the same channels.

    Also yields the axis of each result that has these channels.
    """
    first, size = places[0], places[0][0].shape[places[0][1]]
    others: dict[int, list[Place | None]] = {}
    for tensor, axis in places[1:]:
        if tensor is not first[0] and tensor.shape[axis] == size:
            others.setdefault(id(tensor), [None]).append((tensor, axis))
    for count, choice in enumerate(product(*others.values())):
        if count == _MOST_TRIALS:
            return
        chosen = (first, *(place for place in choice if place is not None))
        axes = _find_axes(call, whole, chosen, size)
        if axes is not None:
            yield chosen, axes


def _find_axes(
    call: Call, whole: list[Tensor], chosen: tuple[Place, ...], size: int
) -> list[int | None] | None:
    """Returns the axis of each result along which it has these channels; None where none has."""
    axes: list[int | None] | None = None
    for kept in (np.flatnonzero(np.arange(size) != size // 3), np.arange(1, size, 2)):
        try:
            part = _run(call, {id(tensor): (axis, kept) for tensor, axis in chosen})
        except (RuntimeError, IndexError, ValueError):
            return None
        now = [_find_axis(one, all_, kept) for one, all_ in zip(part, whole, strict=True)]
        if -1 in now or all(axis is None for axis in now) or axes not in (None, now):
            return None
        axes = now
    return axes


def _run(call: Call, kept: dict[int, tuple[int, Ids]]) -> list[Tensor]:
    """Runs the operator anew on some channels of operands, by identity; these stay as they are."""

    def narrow(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in kept:
            return value.clone()
        axis, indices = kept[id(value)]
        return value.index_select(axis, torch.from_numpy(indices))

    args, kwargs = tree_map(narrow, (call.args, dict(call.kwargs)))
    return [leaf for leaf in tree_leaves(call.func(*args, **kwargs)) if isinstance(leaf, Tensor)]


def _find_axis(part: Tensor, whole: Tensor, kept: Ids) -> int | None:
    """Returns the axis along which `part` is those indices of `whole`.

    Returns:
        None where both are equal, so that the result has nothing of these channels; -1 where they
        differ in another way.
    """
    if part.shape == whole.shape:
        return None if _is_close(part, whole) else -1
    differs = [
        axis
        for axis in range(whole.ndim)
        if part.shape[axis : axis + 1] != whole.shape[axis : axis + 1]
    ]
    if part.ndim != whole.ndim or len(differs) != 1 or kept[-1] >= whole.shape[differs[0]]:
        return -1
    wanted = whole.index_select(differs[0], torch.from_numpy(kept))
    return differs[0] if part.shape == wanted.shape and _is_close(part, wanted) else -1


def _is_close(found: Tensor, wanted: Tensor) -> bool:
    if not wanted.is_floating_point():
        return bool((found == wanted).all())
    scale = float(wanted.detach().abs().max()) if wanted.numel() else 0.0
    tolerance = scale * torch.finfo(wanted.dtype).eps ** 0.5
    return torch.allclose(found, wanted, rtol=0, atol=tolerance, equal_nan=True)
