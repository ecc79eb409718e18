"""Layers with weights: convolutions, matrix products, normalizations."""

import math
from itertools import permutations
from typing import Any

import numpy as np
from torch import Tensor, nn

from compress.prune.analysis.channel_sets import FIXED, Ids
from compress.prune.analysis.movement_rules import tie_rows
from compress.prune.analysis.pointwise_rules import combine_axes
from compress.prune.analysis.trace import AxisIds, LayerUse, lose_whole_groups
from compress.prune.analysis.tracer import Call, ChannelTracer

STAYS = "its input's channels cannot leave"


def convolve(tracer: ChannelTracer, call: Call) -> None:
    """Ties a convolution's inputs to its weight; its outputs are channels of their own."""
    x, weight, bias, stride, padding, dilation, is_transposed, _, groups = call.args
    axis = 1 if x.ndim == weight.ndim else 0
    is_batch = axis == 1
    along = _convolved_channels(tracer, call)
    tracer.note_statistic(call, along)
    across = tuple(other for other in range(axis + 1, x.ndim) if other not in along)
    tracer.freeze(x, f"'{tracer.place}' convolves across them", across)
    tracer.freeze(weight, "a kernel's extent", tuple(range(2, weight.ndim)))
    inputs = _row(tracer, x, axis)
    tracer.keep_bins(inputs)
    if groups == 1:
        in_axis = 0 if is_transposed else 1
        reason = STAYS if tracer.ids(weight) else f"the weight of '{tracer.place}' is not followed"
        tracer.trace.sets.tie(inputs, _row(tracer, weight, in_axis), reason)
        outputs = _row(tracer, weight, 1 - in_axis)
    else:
        outputs = _convolve_groups(tracer, inputs, weight, groups, is_transposed)
    if bias is not None:
        tracer.trace.sets.tie(_row(tracer, bias, 0), outputs, "a bias of channels that stay")
    axes = {0: tracer.ids(x)[0]} if is_batch and 0 in tracer.ids(x) else {}
    made = {axis: outputs} if (outputs != FIXED).any() else {}
    tracer.set_ids(call.out, axes | along | made)
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    kind = "conv_transpose" if is_transposed else "conv"
    spatial = call.args[0] if is_transposed else call.out
    positions = math.prod(spatial.shape) // spatial.shape[axis]
    _note_layer(tracer, kind, weight, (x, call.out), settings, (inputs, outputs), positions)


def _convolved_channels(tracer: ChannelTracer, call: Call) -> AxisIds:
    """Returns channels along which a kernel of a single input channel runs, with the axis.

    Efficient channel attention (Wang et al., 2020), and feature maps that are packed by a
    three-dimensional convolution (Guizilini et al., 2020, "3D Packing"): the kernel is the same for
    all channels, and what is beside a channel is the order in which they are stored. As a softmax
    or a mean over channels it goes on with those that are left. Two dimensions are left out: there
    a single channel may be a picture.
    """
    x, weight, _, stride, padding, dilation, is_transposed = call.args[:7]
    axis = x.ndim - weight.ndim + 2
    ids = tracer.ids(x).get(axis)
    is_alone = weight.ndim in (3, 5) and weight.shape[1] == 1 == x.shape[axis - 1]
    if ids is None or is_transposed or not is_alone or stride[0] != 1:
        return {}
    keeps_length = 2 * padding[0] == dilation[0] * (weight.shape[2] - 1)
    return {axis: ids} if keeps_length else {}


def convolve_deformed(tracer: ChannelTracer, call: Call) -> None:
    """Ties a convolution that samples its input at offsets; each offset group keeps its share."""
    x, weight, offset, mask, bias = call.args[:5]
    groups, offset_groups = call.args[11:13]
    for moved in (offset, mask):
        tracer.freeze(moved, f"offsets of '{tracer.place}'")
    inputs = _row(tracer, x, 1)
    by_offset = inputs.reshape(offset_groups, -1)
    tracer.trace.sets.tie(by_offset, by_offset[:1], f"offset groups of '{tracer.place}'")
    strides, padding, dilation = (list(call.args[at : at + 2]) for at in (5, 7, 9))
    plain = (x, weight, bias, strides, padding, dilation, False, [0, 0], groups)
    convolve(tracer, Call(call.func, call.name, plain, {}, call.out))


def _convolve_groups(
    tracer: ChannelTracer, inputs: Ids, weight: Tensor, groups: int, is_transposed: bool
) -> Ids:
    """Ties a grouped convolution so that its groups stay equal; returns the output's ids.

    Whole groups leave, or the same places from every group, see `lose_whole_groups`.
    """
    sets = tracer.trace.sets
    first, second = _row(tracer, weight, 0), _row(tracer, weight, 1)
    grouped_in = inputs.reshape(groups, -1)
    by_group = first.reshape(groups, -1)
    if lose_whole_groups(groups, inputs.size, (first.size, second.size)):
        tracer.trace.whole_groups.add(tracer.place)
        sets.tie(grouped_in, grouped_in[:, :1], STAYS)
        sets.tie(by_group, grouped_in[:, :1], STAYS)
        sets.freeze(second, f"whole groups leave '{tracer.place}', not parts of one")
        return np.repeat(by_group[:, 0], second.size) if is_transposed else first
    reason = f"the groups of '{tracer.place}' have to stay equal"
    sets.tie(grouped_in, grouped_in[:1], reason)
    sets.tie(by_group, by_group[:1], reason)
    if is_transposed:
        sets.tie(grouped_in, by_group, reason)
        return np.tile(second, groups)
    sets.tie(grouped_in[0], second, reason)
    return first


def multiply(tracer: ChannelTracer, call: Call) -> None:
    """Ties the axes that a matrix product sums over; rows, columns and batches keep their ids."""
    a, b = call.args[:2] if call.name in ("mm", "bmm", "mv", "dot", "vdot") else call.args[1:3]
    reason = f"multiplied in '{tracer.place}'"
    rows = [tracer.ids(a).get(a.ndim - 1), tracer.ids(b).get(max(b.ndim - 2, 0))]
    if rows[0] is not None and b in tracer.weight_names:
        tracer.keep_bins(rows[0])
    tie_rows(tracer, rows, reason)
    axes: AxisIds = {}
    if call.out.ndim == 3:
        batch = tie_rows(tracer, [tracer.ids(a).get(0), tracer.ids(b).get(0)], reason)
        if batch is not None:
            axes[0] = batch
    if a.ndim >= 2 and (left := tracer.ids(a).get(a.ndim - 2)) is not None:
        axes[call.out.ndim - (2 if b.ndim > 1 else 1)] = left
    if b.ndim >= 2 and (outputs := tracer.ids(b).get(b.ndim - 1)) is not None:
        axes[call.out.ndim - 1] = outputs
    tracer.set_ids(call.out, axes)
    if call.name in ("addmm", "baddbmm", "addmv"):
        axes = combine_axes(tracer, [call.args[0], call.out], call.out)
        tracer.set_ids(call.out, axes)
    if call.out.ndim > 1:
        _note_product(tracer, a, b, call.out)


def _note_product(tracer: ChannelTracer, a: Tensor, b: Tensor, out: Tensor) -> None:
    """Notes a matrix product as a layer where one of its operands is a weight.

    The first operand is one in `weight @ x`, as long as no input has a part in it.
    """
    if _name_weight(tracer, b, is_matrix=True):
        weight, x, made, axis = b, a, out, b.ndim - 1
    elif b.ndim > 1 and not tracer.sources.needs_inputs(a):
        weight, x, made, axis = a, b.mT, out.mT, a.ndim - 2
    else:
        return
    if _name_weight(tracer, weight, is_matrix=True):
        ids = _row(tracer, weight, 2 * weight.ndim - 3 - axis), _row(tracer, weight, axis)
        ends = x.reshape(-1, x.shape[-1]), made.reshape(-1, made.shape[-1])
        _note_layer(tracer, "linear", weight, ends, {}, ids, ends[0].shape[0])


def normalize_batch(tracer: ChannelTracer, call: Call) -> None:
    """Ties the per-channel values of a BatchNorm to its input's channels.

    In training mode (standardized weights) it computes over the other axes.
    """
    x = call.args[0]
    if _is_training(call):
        others = {axis: ids for axis, ids in tracer.ids(x).items() if axis != 1}
        tracer.note_statistic(call, others)
    _tie_parameters(tracer, [x, *call.tensors[1:]], [1] + [0] * (len(call.tensors) - 1))
    tracer.set_ids(call.outputs[0], dict(tracer.ids(x)))


def _is_training(call: Call) -> bool:
    named = zip(call.func._schema.arguments, call.args, strict=False)
    return any(item.name in ("train", "training") and value for item, value in named)


def normalize_layer(tracer: ChannelTracer, call: Call) -> None:
    """Ties a LayerNorm's weights to its input's channels, over which it computes its statistics."""
    x, shape = call.args[0], call.args[1]
    first = x.ndim - len(shape)
    parameters = [value for value in call.args[2:4] if isinstance(value, Tensor)]
    over = {}
    for axis in range(first, x.ndim):
        _tie_parameters(tracer, [x, *parameters], [axis] + [axis - first] * len(parameters))
        if axis in tracer.ids(x):
            over[axis] = tracer.ids(x)[axis]
            tracer.note_site(call, over[axis])
    tracer.note_statistic(call, over)
    tracer.set_ids(call.outputs[0], dict(tracer.ids(x)))


def normalize_group(tracer: ChannelTracer, call: Call) -> None:
    """Ties a GroupNorm: whole groups leave; with a single group any channel may."""
    x, groups = call.args[0], call.args[6]
    parameters = [value for value in call.args[1:3] if isinstance(value, Tensor)]
    _tie_parameters(tracer, [x, *parameters], [1] + [0] * len(parameters))
    ids = tracer.ids(x).get(1)
    if ids is not None and groups == 1:
        tracer.note_statistic(call, {1: ids})
    elif ids is not None:
        table = ids.reshape(groups, -1)
        tracer.trace.sets.tie(table, table[:, :1], f"grouped in '{tracer.place}'")
        if not tracer.is_running(nn.GroupNorm):
            tracer.note_site(call, table[:, 0])
        tracer.trace.whole_groups.add(tracer.place)
    tracer.set_ids(call.outputs[0], dict(tracer.ids(x)))


def normalize_weight(tracer: ChannelTracer, call: Call) -> None:
    """Weight normalization divides a weight by its norm over all axes but one, and scales that.

    The norm of what stays is a statistic of the remaining channels, along every axis.
    """
    direction, scale = call.args[:2]
    kept_axis = call.args[2] if len(call.args) > 2 else 0
    _tie_parameters(tracer, [direction, scale], [kept_axis, kept_axis])
    tracer.note_statistic(call, dict(tracer.ids(direction)))
    tracer.set_ids(call.outputs[0], dict(tracer.ids(direction)))


def look_up(tracer: ChannelTracer, call: Call) -> None:
    """An embedding's rows are picked by a table; its columns are channels."""
    weight = call.args[0]
    tracer.freeze(weight, f"'{tracer.place}' looks them up", (0,))
    columns = tracer.ids(weight).get(1)
    tracer.set_ids(call.out, {} if columns is None else {call.out.ndim - 1: columns})


def _tie_parameters(tracer: ChannelTracer, tensors: list[Tensor], axes: list[int]) -> None:
    rows = [tracer.ids(tensor).get(axis) for tensor, axis in zip(tensors, axes, strict=True)]
    tie_rows(tracer, rows, f"normalized by '{tracer.place}'")


def _row(tracer: ChannelTracer, tensor: Tensor, axis: int) -> Ids:
    found = tracer.ids(tensor).get(axis)
    return np.full(tensor.shape[axis], FIXED, np.int64) if found is None else found


def _note_layer(
    tracer: ChannelTracer,
    kind: str,
    weight: Tensor,
    ends: tuple[Tensor, Tensor],
    settings: dict[str, Any],
    ids: tuple[Ids, Ids],
    positions: int,
) -> None:
    tracer.trace.layers.append(
        LayerUse(
            module=tracer.place,
            weight=_name_weight(tracer, weight, is_matrix=kind == "linear"),
            kind=kind,
            input_shape=tuple(ends[0].shape),
            output_shape=tuple(ends[1].shape),
            weight_shape=tuple(weight.shape),
            settings=settings,
            inputs=ids[0],
            outputs=ids[1],
            positions=positions,
            is_constant=not tracer.sources.needs_inputs(ends[1]),
        )
    )


def _name_weight(tracer: ChannelTracer, weight: Tensor, *, is_matrix: bool) -> str:
    if weight in tracer.weight_names:
        return str(tracer.weight_names[weight])
    return _name_computed(tracer, weight, is_matrix=is_matrix)


def _name_computed(tracer: ChannelTracer, weight: Tensor, *, is_matrix: bool) -> str:
    """Returns the name of the parameter from which a weight was computed channel by channel.

    A matrix may be turned, be a part of one (keys and values beside queries), be one of several
    that lie in one parameter, and have further axes of size 1 (as in `torch.einsum`); it is a
    weight only where both its axes are a parameter's.
    """
    ids = tracer.ids(weight)
    last = weight.ndim - 1
    if not ids or (is_matrix and not ids.keys() >= {last - 1, last}):
        return ""
    for name, axes in tracer.trace.weights.items():
        orders = permutations(axes, len(ids)) if is_matrix else [tuple(ids)]
        if any(
            all(
                axis in axes and _is_part(row, axes[axis])
                for axis, row in zip(order, ids.values(), strict=True)
            )
            for order in orders
        ):
            return name
    return ""


def _is_part(row: Ids, whole: Ids) -> bool:
    """Returns whether channels lie beside each other in this order in a parameter's.

    They may do so several times: one axis of a matrix may be the outputs of all experts of a layer.
    """
    start = int(np.argmax(whole == row[0]))
    if whole[start] != row[0]:
        return False
    once = row[np.sort(np.unique(row, return_index=True)[1])]
    times = row.size // once.size
    return np.array_equal(whole[start : start + once.size], once) and any(
        np.array_equal(row, several) for several in (np.tile(once, times), np.repeat(once, times))
    )


LAYER_RULES = {
    "convolution": convolve,
    "convolution_overrideable": convolve,
    "deform_conv2d": convolve_deformed,
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "vdot", "addmv"), multiply),
    **dict.fromkeys(
        (
            *("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit"),
            *("_native_batch_norm_legit_no_training", "batch_norm", "_batch_norm_with_update"),
        ),
        normalize_batch,
    ),
    "native_layer_norm": normalize_layer,
    "native_group_norm": normalize_group,
    "_weight_norm_interface": normalize_weight,
    "embedding": look_up,
}
