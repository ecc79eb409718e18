"""Operators that only move values: the same operator, run on the ids, tells where they went."""

import math
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_map

from compress.prune.analysis.channel_sets import FIXED, Ids
from compress.prune.analysis.cut_rules import CUTS, cut_channels, find_cut
from compress.prune.analysis.families import PICKED_BY_TABLE, TIED_TOGETHER
from compress.prune.analysis.trace import AxisIds
from compress.prune.analysis.tracer import (
    CONSTANTS,
    SPREADERS,
    VIEWS,
    Call,
    ChannelTracer,
    expand_ids,
    varies,
)

NO_LAYER_MAKES = (
    "no layer makes, so that their number stays (a computed position, a constant, an input)"
)
_PACKED = (2, 3)
"""Keys and values, and queries before them, of one layer."""


def move(tracer: ChannelTracer, call: Call) -> None:
    """Hands ids through an operator with one source (view, permute, slice, pad, expand …)."""
    source = call.args[0]
    found: list[AxisIds] = [{} for _ in call.outputs]
    cut = find_cut(call) if call.name in CUTS else None
    if cut in tracer.spread_ids(source):
        tracer.tie_spread(source)
    for axis, ids in tracer.ids(source).items():
        if axis not in tracer.spread_ids(source) and (ids == ids[:1]).all():
            tracer.trace.sets.freeze(ids[:1], TIED_TOGETHER)
            continue
        if call.name == "constant_pad_nd":
            found[0][axis] = _pad(tracer, call, ids, axis)
            continue
        if axis == cut and not (call.name == "slice" and call.out.shape[axis] == ids.size):
            for axes, part in zip(found, cut_channels(tracer, call, ids), strict=False):
                axes[axis] = part
            continue
        moved = _run_on(call, source, expand_ids(ids, axis, tuple(source.shape)))
        for out, axes, moved_ids in zip(call.outputs, found, moved, strict=True):
            _settle(tracer, call, out, axes, moved_ids)
        _move_spread(tracer, call, axis, moved, found)
    for out, axes in zip(call.outputs, found, strict=True):
        tracer.set_ids(out, axes)
        if source in tracer.weight_names and call.name in ("t", "detach", "alias"):
            tracer.weight_names[out] = tracer.weight_names[source]


def _move_spread(
    tracer: ChannelTracer, call: Call, axis: int, slabs: list[Tensor], found: list[AxisIds]
) -> None:
    """Hands on where channels really lie that share an axis with others.

    Where they lie along one axis again (behind a shuffle), it gets their own ids in place of those
    of the slabs.

    Args:
        tracer: where positions and ties are noted.
        call: the operator.
        axis: of its source, along which the slabs lie.
        slabs: the first id of each slab, moved.
        found: ids per axis of each result, which are changed.
    """
    source = call.args[0]
    lying = tracer.spread_ids(source).get(axis)
    if lying is None:
        return
    moved = _run_on(call, source, lying)
    for out, axes, one, positions in zip(call.outputs, found, slabs, moved, strict=True):
        support = [number for number in range(one.ndim) if varies(one, number)]
        if len(support) != 1 or support[0] not in axes:
            tracer.tie_slabs(lying, axis, is_count=False)
        elif any(varies(positions, other) for other in range(one.ndim) if other != support[0]):
            tracer.set_spread(out, support[0], positions)
        else:
            axes[support[0]] = tracer.tie_slabs(positions, support[0], is_count=False)


def _pad(tracer: ChannelTracer, call: Call, ids: Ids, axis: int) -> Ids:
    """Pads or crops an axis's ids; what is filled in along it belongs to no channel.

    A border across other axes is as much a part of each channel as what it surrounds.
    """
    from_last = call.out.ndim - 1 - axis
    before, after = (*call.args[1][2 * from_last :], 0, 0)[:2]
    cropped = ids[max(-before, 0) : ids.size - max(-after, 0)]
    padded = np.pad(cropped, (max(before, 0), max(after, 0)), constant_values=FIXED)
    if before or after:
        tracer.note_site(call, padded, axis)
    return padded


def _run_on(call: Call, source: Tensor, positions: Tensor) -> list[Tensor]:
    """Runs the operator on ids instead of values."""
    if call.name in VIEWS:
        return [positions.reshape(call.out.shape)]

    def swap(value: Any) -> Any:
        return positions if value is source else value

    args, kwargs = tree_map(swap, (call.args, dict(call.kwargs)))
    if call.name == "_to_copy":
        args, kwargs = args[:1], {}
    out = call.func(*args, **kwargs) if call.name != "_to_copy" else args[0]
    return [out] if isinstance(out, Tensor) else list(out)


def _settle(
    tracer: ChannelTracer, call: Call, out: Tensor, axes: AxisIds, positions: Tensor
) -> None:
    """Finds the one axis of the result that the ids belong to, tying ids to make it so."""
    support = [axis for axis in range(positions.ndim) if varies(positions, axis)]
    if not support:
        tracer.trace.sets.freeze(
            np.array([int(positions.reshape(-1)[0])] if positions.numel() else [], np.int64),
            f"'{call.name}' in '{tracer.place}' takes a single channel",
        )
        return
    axis = support[0]
    if len(support) > 1:
        is_shuffle = call.name not in VIEWS and 1 in support
        axis = 1 if is_shuffle else _choose_axis(tracer, out, support, positions)
    is_spread = len(support) > 1 and call.name in VIEWS and axis not in axes
    ids = tracer.tie_slabs(positions, axis, is_count=is_spread)
    if axis in axes:
        _mix(tracer, call, axes, axis, ids)
        return
    axes[axis] = ids
    if is_spread:
        tracer.set_spread(out, axis, positions)
    if call.name in (*VIEWS, "expand"):
        tracer.note_site(call, ids, axis)


def _mix(tracer: ChannelTracer, call: Call, axes: AxisIds, axis: int, ids: Ids) -> None:
    """Keeps all channels of one of two axes that became one, so that those of the other may leave.

    Equal values make way for other channels, else the fewer for the more (the experts of a layer
    for its width, the points of a grid for the features that are laid on it).
    """
    pair = sorted(
        (axes[axis], ids), key=lambda one: (not tracer.is_own(one), int(np.unique(one).size))
    )
    reason = f"'{call.name}' in '{tracer.place}' joins them with the channels of another axis"
    tracer.trace.sets.freeze(pair[0], reason)
    axes[axis] = pair[1]


def _choose_axis(tracer: ChannelTracer, out: Tensor, support: list[int], positions: Tensor) -> int:
    """Chooses, among axes that share a channel axis, the one along which channels leave.

    Attention loses whole heads (of the shapes [heads, width], [3, heads, width] and, where it is
    deformable, [heads, levels, points, 2]); otherwise the longest axis gives the finest choice,
    unless it is known to leave none (see `find_channels`).
    """
    heads = {size for size in tracer.head_counts() if size > 1}
    is_packed = len(support) > 2 and out.shape[support[0]] in _PACKED
    matching = [axis for axis in support[is_packed:] if out.shape[axis] in heads]
    if matching:
        return matching[0]
    by_length = sorted(support, key=lambda axis: (-out.shape[axis], axis))
    ids = np.unique(_narrow_to(positions, support).numpy())
    return by_length[tracer.note_split(ids)]


def _narrow_to(positions: Tensor, axes: list[int]) -> Tensor:
    """Returns the ids along these axes only; along the others they are all the same."""
    for other in range(positions.ndim):
        if other not in axes:
            positions = positions.narrow(other, 0, 1)
    return positions


def concatenate(tracer: ChannelTracer, call: Call) -> None:
    """Joins tensors along an axis; their other axes must keep the same channels."""
    tensors = [tensor for tensor in call.args[0] if tensor.numel()]
    axis = (call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)) % call.out.ndim
    axes: AxisIds = {}
    for other in range(call.out.ndim):
        rows = [tracer.ids(tensor).get(other) for tensor in tensors]
        if all(row is None for row in rows):
            continue
        if other == axis:
            axes[axis] = np.concatenate(
                [
                    np.full(tensor.shape[axis], FIXED, np.int64) if row is None else row
                    for row, tensor in zip(rows, tensors, strict=True)
                ]
            )
        else:
            tied = tie_rows(tracer, rows, f"joined in '{tracer.place}'")
            if tied is not None:
                axes[other] = tied
    tracer.set_ids(call.out, axes)


def stack(tracer: ChannelTracer, call: Call) -> None:
    """Stacks tensors along a new axis; all their axes must keep the same channels."""
    tensors = call.args[0]
    axis = (call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)) % call.out.ndim
    axes: AxisIds = {}
    for other in range(tensors[0].ndim):
        rows = [tracer.ids(tensor).get(other) for tensor in tensors]
        tied = tie_rows(tracer, rows, f"stacked in '{tracer.place}'")
        if tied is not None:
            axes[other + (other >= axis)] = tied
    tracer.set_ids(call.out, axes)


def unfold_windows(tracer: ChannelTracer, call: Call) -> None:
    """Takes windows apart (`F.unfold`): each channel becomes one per place of the window."""
    ids = tracer.ids(call.args[0]).get(1)
    if ids is not None:
        tracer.set_ids(call.out, {1: np.repeat(ids, math.prod(call.args[1]))})


def shuffle_channels(tracer: ChannelTracer, call: Call) -> None:
    """Shuffles channels between groups (`F.channel_shuffle`): the n-th of every group leave."""
    ids = tracer.ids(call.args[0]).get(1)
    if ids is not None:
        table = ids.reshape(call.args[1], -1)
        reason = f"shuffled in '{tracer.place}'"
        tracer.trace.sets.tie(table[1:], table[:1], reason, is_count=True)
    move(tracer, call)


def fold_windows(tracer: ChannelTracer, call: Call) -> None:
    """Puts windows together (`F.fold`): a channel leaves with all places of its window."""
    ids = tracer.ids(call.args[0]).get(1)
    if ids is not None:
        table = ids.reshape(-1, math.prod(call.args[2]))
        tracer.trace.sets.tie(table, table[:, :1], f"folded in '{tracer.place}'")
        tracer.set_ids(call.out, {1: table[:, 0]})


def tie_rows(tracer: ChannelTracer, rows: list[Ids | None], where: str) -> Ids | None:
    """Ties axes that must keep the same channels.

    Returns:
        the ids of the result: those of the operand that is known longest, so that a masked weight
        has the parameter's and not the mask's; None where one operand has no channels, which keeps
        all others'.
    """
    known = [row for row in rows if row is not None]
    reason = f"{where} with values that {NO_LAYER_MAKES}"
    for row in known[1:]:
        tracer.trace.sets.tie(known[0], row, reason)
    if known and len(known) == len(rows):
        return min(known, key=lambda row: int(row.max()))
    for row in known[:1]:
        tracer.trace.sets.freeze(row, reason)
    return None


def take_rows(tracer: ChannelTracer, call: Call) -> None:
    """Indexes axes by constant tables (relative positions); the other axes keep their ids."""
    source = call.args[0]
    if call.name == "index":
        indices = call.args[1]
    else:
        indices = [None] * (call.args[1] % source.ndim) + [call.args[2]]
    indexed = tuple(axis for axis, index in enumerate(indices) if index is not None)
    reason = f"'{call.name}' in '{tracer.place}' {PICKED_BY_TABLE}"
    for index in indices:
        if index is not None:
            tracer.freeze(index, reason)
    tracer.freeze(source, reason, indexed)
    axes: AxisIds = {}
    for axis, ids in tracer.ids(source).items():
        if axis not in indexed:
            positions = expand_ids(ids, axis, tuple(source.shape))
            arguments = (indices,) if call.name == "index" else call.args[1:]
            _settle(tracer, call, call.out, axes, call.func(positions, *arguments))
    tracer.set_ids(call.out, axes)


def copy_into(tracer: ChannelTracer, call: Call) -> None:
    """Writes one tensor over another: both must keep the same channels."""
    target, value = call.args[0], call.args[1]
    offset = target.ndim - value.ndim
    for axis in range(target.ndim):
        rows = [tracer.ids(target).get(axis), tracer.ids(value).get(axis - offset)]
        tie_rows(tracer, rows, f"written in '{tracer.place}'")
    tracer.set_ids(call.out, dict(tracer.ids(target)))


def like(tracer: ChannelTracer, call: Call) -> None:
    """A constant of another tensor's shape has its channels."""
    tracer.set_ids(call.out, dict(tracer.ids(call.args[0])))


def make_constant(tracer: ChannelTracer, call: Call) -> None:
    """A constant of a shape of its own has channels of its own, one per position.

    What it is combined with may lose channels where its size follows: one that comes from another
    tensor's shape or from a number of the module does, one that is written in the code does not.
    Which it is shows when a channel is tried.
    """
    axes = {axis: tracer.add_own_ids(call, axis) for axis in range(call.out.ndim)}
    tracer.set_ids(call.out, axes)


def spread(tracer: ChannelTracer, call: Call) -> None:
    """Moves ids; a single channel that becomes several gives each an id, as in a constant."""
    move(tracer, call)
    source, out = call.args[0], call.out
    added = out.ndim - source.ndim
    before = [1] * added + list(source.shape)
    new = {
        axis: tracer.add_own_ids(call, axis)
        for axis, size in enumerate(out.shape)
        if before[axis] == 1 and size > 1
    }
    tracer.set_ids(out, tracer.ids(out) | new)


MOVEMENT_RULES = {
    **dict.fromkeys(
        (
            *CUTS,
            *VIEWS,
            *("permute", "transpose", "t", "unsqueeze"),
            *("squeeze", "clone", "contiguous", "_to_copy", "alias", "detach", "roll", "flip"),
            *("constant_pad_nd", "pixel_shuffle", "pixel_unshuffle"),
            *("lift_fresh", "unfold", "transpose_"),
            *("unsqueeze_", "squeeze_", "movedim", "repeat_interleave"),
        ),
        move,
    ),
    "cat": concatenate,
    "stack": stack,
    "index": take_rows,
    "index_select": take_rows,
    "copy_": copy_into,
    **dict.fromkeys(("channel_shuffle", "native_channel_shuffle"), shuffle_channels),
    "im2col": unfold_windows,
    "col2im": fold_windows,
    **dict.fromkeys(("zeros_like", "ones_like", "empty_like", "full_like", "rand_like"), like),
    **dict.fromkeys(CONSTANTS, make_constant),
    **dict.fromkeys(SPREADERS, spread),
}
