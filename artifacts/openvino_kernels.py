"""Convolutions that OpenVINO's kernels for AMX compute wrong in integers.

OpenVINO (seen with 2026.4) takes an INT8 Conv of few input channels apart along the width, the last
axis, and copies its weights into another order than it reads them in. The result has nothing to do
with what the graph says. Two cases:

* A kernel that its stride can divide, without padding (SegFormer's reductions of keys and values,
  patch embeddings inside a network): f neighbours become channels, and fewer than 64 channels more
  than 64.
* A long row: fewer than 32 channels, whose product with the kernel's width is a multiple of 64
  and more than 64.
"""

from collections.abc import Mapping
from typing import Any

import onnx

BLOCK = 64
"""Bytes of a row of AMX's tiles: integers that are multiplied at once."""


def miscomputes_conv(
    node: onnx.NodeProto,
    data: tuple[int, ...],
    weight: tuple[int, ...],
    result: tuple[int, ...],
) -> bool:
    """Whether OpenVINO computes a Conv wrong where it reads integers.

    Args:
        node: a Conv.
        data: shape of its input, [N, C, ..., W].
        weight: shape of its weight, [out, in, ..., kernel].
        result: shape of its output.
    """
    values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    if values.get("dilations", [1])[-1] != 1:
        return False
    channels, kernel = weight[1], weight[-1]
    neighbours = _joined_neighbours(values, data, weight, result)
    if channels < BLOCK < channels * neighbours:
        return True
    channels, kernel = channels * neighbours, kernel // neighbours
    row = channels * kernel
    return kernel > 1 and channels < BLOCK // 2 and row > BLOCK and row % BLOCK == 0


def _joined_neighbours(
    values: Mapping[str, Any],
    data: tuple[int, ...],
    weight: tuple[int, ...],
    result: tuple[int, ...],
) -> int:
    """Returns how many values side by side become channels of one place; 1 where none do."""
    channels, kernel, width = weight[1], weight[-1], data[-1]
    axes = len(data) - 2
    stride = values.get("strides", [1])[-1]
    is_padded = any(values.get("pads", [])[axes - 1 : axes])
    is_padded |= (result[-1] - 1) * stride + kernel > width
    is_fitting = channels % 4 == 0 and (channels <= BLOCK or channels % BLOCK == 0)
    if values.get("group", 1) != 1 or is_padded or not is_fitting:
        return 1
    return max(
        count
        for count in range(1, min(kernel, stride, width) + 1)
        if kernel % count == stride % count == width % count == 0
        and (channels * count <= BLOCK or channels * count % BLOCK == 0)
    )
