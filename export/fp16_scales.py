"""Fits the scales of quantized weights into FP16.

A channel that training left with tiny weights has a scale that FP16 rounds badly or to 0, and
TensorRT refuses a scale of 0. Such a scale is raised to the next value of FP16 and the channel's
integers are rounded to it: with s' the raised scale, w = s q becomes s' round(s q / s'), off by at
most s' / 2. As s' <= max(2 s, 2^-24), that is an int8 rounding for the larger ones and at most 3e-8
for the smallest.
"""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from export.fp16_plan import DEQUANTIZE, MAX_SCALE_ERROR

_SMALLEST_NORMAL = np.float32(2.0**-14)


def refit_weight_scales(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Raises the scales of symmetric int8 weights that FP16 cannot hold.

    Args:
        model: its constants are initializers; it is not changed.

    Returns:
        a copy with refitted weights, and the names of those weights.
    """
    refitted = onnx.ModelProto()
    refitted.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in refitted.graph.initializer}
    uses = [name for node in refitted.graph.node for name in node.input]
    changed = []
    for node in refitted.graph.node:
        if node.op_type != DEQUANTIZE or not _is_symmetric_weight(node, constants):
            continue
        weight, scale = (constants[name] for name in node.input[:2])
        if uses.count(weight.name) != 1 or uses.count(scale.name) != 1:
            continue
        old = numpy_helper.to_array(scale)
        new = raise_scales(old)
        if np.array_equal(old, new):
            continue
        values = _requantize(numpy_helper.to_array(weight), old, new, _axis(node))
        weight.CopyFrom(numpy_helper.from_array(values, weight.name))
        scale.CopyFrom(numpy_helper.from_array(new, scale.name))
        changed.append(weight.name)
    return refitted, tuple(changed)


def raise_scales(scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the scales, those that FP16 would change by too much raised to its next value.

    Scales in FP16's normal range are never off by more than 2^-11 and stay, too large ones as well.
    """
    with np.errstate(over="ignore"):
        halves = scales.astype(np.float16)
    error = np.abs(halves.astype(np.float64) - scales)
    is_bad = (scales < _SMALLEST_NORMAL) & (error > MAX_SCALE_ERROR * scales)
    above = np.where(halves < scales, np.nextafter(halves, np.float16(np.inf)), halves)
    return np.where(is_bad, above.astype(np.float32), scales)


def _requantize(
    values: NDArray[np.int8], old: NDArray[np.float32], new: NDArray[np.float32], axis: int
) -> NDArray[np.int8]:
    ratio = old.astype(np.float64) / new
    if ratio.ndim:
        ratio = ratio.reshape([-1 if index == axis else 1 for index in range(values.ndim)])
    return np.clip(np.rint(values * ratio), -128, 127).astype(np.int8)


def _is_symmetric_weight(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> bool:
    names = list(node.input)
    if not all(name in constants for name in names):
        return False
    if constants[names[0]].data_type != TensorProto.INT8:
        return False
    if constants[names[1]].data_type != TensorProto.FLOAT or len(constants[names[1]].dims) > 1:
        return False
    return len(names) < 3 or not numpy_helper.to_array(constants[names[2]]).any()


def _axis(node: onnx.NodeProto) -> int:
    """Returns the channel axis; ONNX's default is 1."""
    return next((item.i for item in node.attribute if item.name == "axis"), 1)
