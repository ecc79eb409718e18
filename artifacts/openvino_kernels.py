"""Convolutions that OpenVINO's kernels compute wrong, most of them with AMX.

OpenVINO (seen with 2026.4) takes a Conv of few input channels apart along the width, the last
axis, and copies its weights into another order than it reads them in. The result has nothing to do
with what the graph says. The cases, for integers:

* A kernel that its stride can divide, without padding (SegFormer's reductions of keys and values,
  patch embeddings inside a network): f neighbours become channels, and fewer than 64 channels more
  than 64.
* A long row: fewer than 32 channels, whose product with the kernel's width is a multiple of 64
  and more than 64.
* A column: a result one value wide and five rows high or more, whose stride along the width is
  not 1 (after neighbours became channels). Where the row of the input is long it may be right.
* Groups of more than 64 channels that are a multiple of 4 and none of 64, and a kernel of one
  value (ShuffleNet): wrong from five places on.

A ConvTranspose whose input channels are no multiple of 4 (21 classes, a pruned layer) is wrong with
more than one operator behind it, such as an activation and a quantizer: with strides, and with a
kernel of one value.

A Conv over three axes in groups, depthwise too, is less exact than the graph says where it reads
signed integers. Unsigned ones are right. This was seen on a processor without VNNI; on others it
was not looked at.

In bfloat16, which OpenVINO computes float networks in by default with AMX, the first three are
wrong too, and values of two bytes halve the numbers of channels.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import onnx

from artifacts.graph_reading import attribute

ROW_BYTES = 64
"""Length of a row of AMX's tiles: values that are multiplied at once."""
WORD_BYTES = 4
"""Values side by side in a row that become one product."""
FEWEST_PLACES = 5
"""Fewer rows of a column, or places of groups, take other kernels."""
VOLUME_RANK = 5
"""Axes of a tensor that is convolved over three of them."""
INTEGER_BYTES = 1
BFLOAT16_BYTES = 2


def miscomputes_conv(
    node: onnx.NodeProto,
    data: tuple[int, ...],
    weight: tuple[int, ...],
    result: tuple[int, ...],
    value_bytes: int = INTEGER_BYTES,
) -> bool:
    """Whether OpenVINO computes a Conv wrong.

    Args:
        node: a Conv.
        data: shape of its input, [N, C, ..., W].
        weight: shape of its weight, [out, in, ..., kernel].
        result: shape of its output.
        value_bytes: size of the values that it multiplies, INTEGER_BYTES or BFLOAT16_BYTES.
    """
    values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    block = ROW_BYTES // value_bytes
    channels, kernel, stride = weight[1], weight[-1], values.get("strides", [1])[-1]
    if prod(weight[2:]) == 1:
        return value_bytes == INTEGER_BYTES and _is_uneven_group(values, channels, result)
    neighbours = _joined_neighbours(values, data, weight, result, value_bytes)
    if channels < block < channels * neighbours:
        return True
    channels, kernel, stride = channels * neighbours, kernel // neighbours, stride // neighbours
    if kernel == 1:
        return False
    if len(result) > 3 and result[-1] == 1 and result[-2] >= FEWEST_PLACES and stride > 1:
        return True
    row = channels * kernel
    is_dilated = values.get("dilations", [1])[-1] != 1
    return not is_dilated and channels < block // 2 and row > block and row % block == 0


def miscomputes_transposed(node: onnx.NodeProto, weight: tuple[int, ...]) -> bool:
    """Whether OpenVINO computes a ConvTranspose in integers wrong, with operators behind it.

    Args:
        node: a ConvTranspose.
        weight: shape of its weight, [in, out, ..., kernel].
    """
    values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    overlaps = max(values.get("strides", [1])) == 1 and prod(weight[2:]) > 1
    return weight[0] % WORD_BYTES != 0 and not overlaps


def miscomputes_signed(node: onnx.NodeProto, data: tuple[int, ...]) -> bool:
    """Whether OpenVINO computes a Conv of signed integers wrong.

    Args:
        node: a Conv.
        data: shape of its input, [N, C, ...].
    """
    return attribute(node, "group", 1) > 1 and len(data) == VOLUME_RANK


def _is_uneven_group(values: Mapping[str, Any], channels: int, result: tuple[int, ...]) -> bool:
    """Whether each group of a 1x1 Conv reads one block of channels and words of another."""
    is_uneven = channels > ROW_BYTES and channels % WORD_BYTES == 0 and channels % ROW_BYTES != 0
    steps = {*values.get("strides", [1])} | {1 + pad for pad in values.get("pads", [])}
    return (
        is_uneven
        and values.get("group", 1) > 1
        and steps == {1}
        and prod(result[2:]) >= FEWEST_PLACES
    )


def _joined_neighbours(
    values: Mapping[str, Any],
    data: tuple[int, ...],
    weight: tuple[int, ...],
    result: tuple[int, ...],
    value_bytes: int,
) -> int:
    """Returns how many values side by side become channels of one place; 1 where none do."""
    block = ROW_BYTES // value_bytes
    channels, kernel, width = weight[1], weight[-1], data[-1]
    axes = len(data) - 2
    stride = values.get("strides", [1])[-1]
    is_padded = any(values.get("pads", [])[axes - 1 : axes])
    is_padded |= (result[-1] - 1) * stride + kernel > width
    is_dilated = values.get("dilations", [1])[-1] != 1
    is_fitting = channels % (WORD_BYTES // value_bytes) == 0
    is_fitting &= channels <= block or channels % block == 0
    if values.get("group", 1) != 1 or is_padded or is_dilated or not is_fitting:
        return 1
    return max(
        count
        for count in range(1, min(kernel, stride, width) + 1)
        if kernel % count == stride % count == width % count == 0
        and (channels * count <= block or channels * count % block == 0)
    )
