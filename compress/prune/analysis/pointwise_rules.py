"""Operators that work value by value: operands of one size on an axis keep the same channels."""

from torch import Tensor

from compress.prune.analysis.movement_rules import tie_rows
from compress.prune.analysis.trace import AxisIds
from compress.prune.analysis.tracer import Call, ChannelTracer

UNTAGGED = (
    *("hardswish", "hardswish_", "_prelu_kernel", "prelu", "dropout", "native_dropout", "lerp"),
    *(
        "lerp_",
        "hardsigmoid_",
        "masked_fill",
        "masked_fill_",
        "where",
        "relu6",
        "addcmul",
        "addcdiv",
    ),
    *("bitwise_not", "fill_", "zero_", "clamp_", "nan_to_num"),
)


def combine(tracer: ChannelTracer, call: Call) -> None:
    """Ties the operands of an elementwise operator on the axes where they are not broadcast."""
    for out in call.outputs:
        axes = combine_axes(tracer, call.tensors, out)
        tracer.set_ids(out, axes)


def combine_axes(tracer: ChannelTracer, operands: list[Tensor], out: Tensor) -> AxisIds:
    """Returns the ids of an elementwise result of these operands.

    An operand whose values were spread along an axis in a way that is not followed has one value
    there, and so no channels that would have to match.
    """
    axes: AxisIds = {}
    for axis, size in enumerate(out.shape):
        if size < 2:
            continue
        pairs = [(operand, axis - (out.ndim - operand.ndim)) for operand in operands]
        pairs = [(x, own) for x, own in pairs if own >= 0 and x.shape[own] == size]
        varying = [(x, own) for x, own in pairs if x.stride(own) or own in tracer.ids(x)] or pairs
        rows = [tracer.ids(x).get(own) for x, own in varying]
        tied = tie_rows(tracer, rows, f"combined value by value in '{tracer.place}'")
        if tied is not None:
            axes[axis] = tied
    return axes


POINTWISE_RULES = {"pointwise": combine, **dict.fromkeys(UNTAGGED, combine)}
