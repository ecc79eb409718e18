"""Where an axis of a tensor is once operators have moved its values."""

import math
from collections.abc import Sequence

import onnx

RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
MOVES = RESHAPES | {"Cast", "Identity", "Transpose"}


def move_axis(
    node: onnx.NodeProto, before: Sequence[int], after: Sequence[int], axis: int
) -> int | None:
    """Returns where an axis of a node's input is in its output; None where it is in none.

    Args:
        node: one of MOVES.
        before: the input's shape.
        after: the output's shape.
        axis: of the input, from 0.
    """
    if node.op_type == "Transpose":
        stated = [list(item.ints) for item in node.attribute if item.name == "perm"]
        order = stated[0] if stated else list(reversed(range(len(before))))
        return order.index(axis)
    if node.op_type not in RESHAPES:
        return axis
    outside = math.prod(before[:axis])
    return next(
        (
            place
            for place, size in enumerate(after)
            if size == before[axis] and math.prod(after[:place]) == outside
        ),
        None,
    )
