"""The reductions behind which OpenVINO miscomputes a quantizer.

OpenVINO (seen with 2026.4) computes a quantizer in the kernel of the reduction before it, with all
that stands between. Extrema come out wrong always, but for a guard in front of the quantizer
(`artifacts/openvino_guard.py`). Where the reduced axis is dropped and others follow it, as in the
mean over a transformer's tokens, one value per channel in between (a BatchNormalization, a Mul or
an Add) is read along the wrong axis, activations before it or not; one value per place (cells seen
by several cameras) is read right. A Reshape to another shape, a
Transpose or a Slice in between ends the kernel, and all is right.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import onnx
from numpy.typing import NDArray

EXTREMA = frozenset({"GlobalMaxPool", "ReduceMax", "ReduceMin"})
SCALING = frozenset({"BatchNormalization", "Mul", "Add", "Sub", "Div"})
"""What holds one value per channel, where a constant of theirs has more than one."""
_VIEWS = frozenset(["Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"])
"""They change nothing where the shape of before comes back."""
_ACTIVATIONS = frozenset(
    [
        "Abs",
        "Clip",
        "Elu",
        "Erf",
        "Gelu",
        "HardSwish",
        "LeakyRelu",
        "Relu",
        "Sigmoid",
        "Sqrt",
        "Swish",
        "Tanh",
    ]
)
_JOINED = SCALING | _ACTIVATIONS | _VIEWS
"""What is computed in the reduction's kernel."""
_MOVED_PAST = SCALING | _VIEWS | {"Clip", "Relu"}
"""What a quantizer is moved past, towards the reduction."""


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """A tensor that comes from a reduction with a dropped inner axis alone.

    Attributes:
        reduction: the name of its node.
        shape: of its result; None if unknown.
        is_misread: channels were scaled since, so that a quantizer behind it comes out wrong.
    """

    reduction: str
    shape: tuple[int, ...] | None
    is_misread: bool = False


def find_reduced(
    nodes: Iterable[onnx.NodeProto],
    shape_of: Callable[[str], tuple[int, ...] | None],
    constant_of: Callable[[str], NDArray | None],
) -> dict[str, Reduced]:
    """Finds the tensors that OpenVINO computes in the kernel of such a reduction, by name.

    Args:
        nodes: in topological order.
        shape_of: gives the shape of a tensor, None if it is unknown.
        constant_of: gives the value of a tensor, None if it is computed.
    """
    found: dict[str, Reduced] = {}
    for node in nodes:
        names = [name for name in node.input if name]
        given = constant_of(names[1]) if len(names) > 1 else None
        if names and drops_an_inner_axis(node, len(shape_of(names[0]) or ()), given):
            shape = shape_of(node.output[0])
            found[node.output[0]] = Reduced(reduction=node.name, shape=shape)
            continue
        constants = [value for name in names if (value := constant_of(name)) is not None]
        computed = [name for name in names if constant_of(name) is None]
        before = [found[name] for name in computed if name in found]
        if node.op_type not in _JOINED or not before or len(before) < len(computed):
            continue
        is_as_reduced = shape_of(computed[0]) in (None, before[0].shape)
        scales = node.op_type in SCALING and any(
            _differs_by_channel(node, value, before[0].shape) for value in constants
        )
        is_passed = node.op_type in _MOVED_PAST and any(item.is_misread for item in before)
        found[node.output[0]] = replace(
            before[0], is_misread=is_passed or (scales and is_as_reduced)
        )
    return found


def drops_an_inner_axis(node: onnx.NodeProto, rank: int | None, given: NDArray | None) -> bool:
    """Whether a node reduces axes away that others follow.

    Args:
        node: of any operator.
        rank: of its first input; None if unknown.
        given: the axes, where they are a constant input.
    """
    if not node.op_type.startswith("Reduce") or not rank:
        return False
    values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    axes = values.get("axes") if given is None else given.reshape(-1).tolist()
    if values.get("keepdims", 1) or not axes:
        return False
    return bool(min(axis % rank for axis in axes) < rank - len(axes))


def _differs_by_channel(
    node: onnx.NodeProto, value: NDArray, shape: tuple[int, ...] | None
) -> bool:
    """Whether a constant beside a reduction's result has one value per index of axis 1.

    Of a result with two axes, or of unknown shape, any constant of several values counts.
    """
    if node.op_type == "BatchNormalization" or shape is None or len(shape) < 3:
        return value.size > 1
    spread = [axis - value.ndim for axis, size in enumerate(value.shape) if size > 1]
    return spread == [1 - len(shape)]
