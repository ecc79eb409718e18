"""The reductions behind which OpenVINO miscomputes a quantizer.

OpenVINO (seen with 2026.4) computes a quantizer in the kernel of the reduction before it, with all
that stands between. Extrema come out wrong always, but for a guard in front of the quantizer
(`artifacts/openvino_guard.py`). Where the reduced axis is dropped and others follow it, as in the
mean over a transformer's tokens, one value per channel in between (a BatchNormalization, a Mul or
an Add) is read along the wrong axis.
"""

import onnx
from numpy.typing import NDArray

EXTREMA = frozenset({"GlobalMaxPool", "ReduceMax", "ReduceMin"})
SCALING = frozenset({"BatchNormalization", "Mul", "Add", "Sub", "Div"})
"""What holds one value per channel, where a constant of theirs has more than one."""


def drops_an_inner_axis(node: onnx.NodeProto, rank: int | None, given: NDArray | None) -> bool:
    """Whether a node reduces axes away that others follow.

    Args:
        node: of any operator.
        rank: of its first input; None if unknown.
        given: the axes, where they are a constant input.
    """
    values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    axes = values.get("axes") if given is None else given.reshape(-1).tolist()
    if not node.op_type.startswith("Reduce") or values.get("keepdims", 1) or not axes or not rank:
        return False
    return bool(min(axis % rank for axis in axes) < rank - len(axes))
