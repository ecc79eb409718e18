"""Checks of the scales and zero points of Q/DQ pairs; some runtimes take them as they are."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from artifacts.errors import InputError
from artifacts.graph_checks import FLOAT_TYPES
from artifacts.wording import count_of

_PAIRS = ("QuantizeLinear", "DequantizeLinear")
_ZERO_POINT = 2
_DEFAULT_AXIS = 1

Constants = Mapping[str, onnx.TensorProto]


def check_scales(graph: onnx.GraphProto, path: Path) -> None:
    """Refuses Q/DQ pairs whose constant scales or zero points cannot be right.

    Args:
        graph: the graph, with its external data loaded.
        path: its file, for the errors.

    Raises:
        InputError: naming the node: a scale is zero, negative or not finite; it has not as many
            values as its zero point, or as a weight has channels; or a zero point is of another
            type than the integers that it belongs to.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    integers = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type not in _PAIRS or len(node.input) < _ZERO_POINT:
            continue
        place = f"node '{node.name or node.op_type}' of {path}"
        scale = constants.get(node.input[1])
        zero_point = constants.get(node.input[2]) if len(node.input) > _ZERO_POINT else None
        if scale is not None and scale.data_type in FLOAT_TYPES:
            _check_values(scale, place)
        if scale is not None and zero_point is not None:
            _check_counts(scale, zero_point, place)
        if node.op_type == "QuantizeLinear":
            integers |= _type_of_result(node, zero_point)
            continue
        if zero_point is not None:
            _check_type(zero_point, integers.get(node.input[0]), place)
        weight = constants.get(node.input[0])
        if scale is not None and weight is not None:
            _check_axis(node, weight, scale, place)


def _type_of_result(node: onnx.NodeProto, zero_point: onnx.TensorProto | None) -> dict[str, int]:
    """Returns the type of a Q's integers by their name; nothing where it is not known here."""
    if zero_point is not None:
        return {node.output[0]: zero_point.data_type}
    if len(node.input) > _ZERO_POINT and node.input[_ZERO_POINT]:
        return {}
    settings = {item.name: item.i for item in node.attribute}
    return {node.output[0]: settings.get("output_dtype") or onnx.TensorProto.UINT8}


def _check_values(scale: onnx.TensorProto, place: str) -> None:
    scales = onnx.numpy_helper.to_array(scale).astype(np.float64)
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise InputError(
            f"{place} has a scale of "
            f"{scales.min() if np.isfinite(scales).all() else 'NaN or infinity'}",
            "scales above 0",
        )


def _check_counts(scale: onnx.TensorProto, zero_point: onnx.TensorProto, place: str) -> None:
    counts = [int(np.prod(each.dims, dtype=np.int64)) for each in (scale, zero_point)]
    if counts[1] not in (1, counts[0]):
        raise InputError(
            f"{place} has {count_of(counts[0], 'scale')} and {counts[1]} zero points",
            "one for each scale",
        )


def _check_type(zero_point: onnx.TensorProto, integers: int | None, place: str) -> None:
    if integers not in (None, zero_point.data_type):
        name = onnx.TensorProto.DataType.Name
        raise InputError(
            f"{place} reads {name(integers or 0)} with a zero point of type "
            f"{name(zero_point.data_type)}",
            "both of one type",
        )


def _check_axis(
    node: onnx.NodeProto, weight: onnx.TensorProto, scale: onnx.TensorProto, place: str
) -> None:
    """Scales along an axis are one for each of its entries; those of blocks have more axes."""
    settings = {item.name: item.i for item in node.attribute}
    axis = settings.get("axis", _DEFAULT_AXIS)
    if len(scale.dims) != 1 or scale.dims[0] == 1 or settings.get("block_size"):
        return
    if not -len(weight.dims) <= axis < len(weight.dims) or weight.dims[axis] != scale.dims[0]:
        raise InputError(
            f"{place} has {scale.dims[0]} scales along axis {axis} of the shape "
            f"{list(weight.dims)[:8]}",
            "one for each of the axis",
        )
