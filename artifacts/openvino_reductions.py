"""The reductions behind which OpenVINO miscomputes a quantizer.

OpenVINO (seen with 2026.4) computes a quantizer in the kernel of the reduction before it, with all
that stands between. Extrema come out wrong always. Where the reduced axis is dropped and others
follow it, as in the mean over a transformer's tokens, one value per channel in between (a
BatchNormalization, a Mul or an Add) is read along the wrong axis.
"""

from collections.abc import Sequence

EXTREMA = frozenset({"GlobalMaxPool", "ReduceMax", "ReduceMin"})


def drops_an_inner_axis(
    op_type: str, rank: int | None, axes: Sequence[int] | None, keepdims: int
) -> bool:
    """Whether a node reduces axes away that others follow.

    Args:
        op_type: the node's operator.
        rank: of its input; None if unknown.
        axes: what it reduces; None for all of them.
        keepdims: its attribute.
    """
    if not op_type.startswith("Reduce") or keepdims or axes is None or rank is None:
        return False
    return min(axis % rank for axis in axes) < rank - len(axes)
