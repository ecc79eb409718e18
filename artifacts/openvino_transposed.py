"""ConvTransposes that OpenVINO computes in float, whatever their Q/DQ pairs say.

It has kernels in integers (2026.4, x64) for one group, strides of 3 at most and kernels that cover
their stride, and for inputs without a zero point. Without AMX, what one reads beside a Conv is
uint8 for both, negative values get a zero point, and it is in float again. With dilation there is a
kernel in integers, seven times as slow as the float one.
"""

from collections.abc import Sequence

import onnx

WIDEST_STRIDE = 3


def find_float_trait(node: onnx.NodeProto, kernel: Sequence[int]) -> str | None:
    """Returns what keeps a ConvTranspose from a good kernel in integers; None if nothing does.

    Args:
        node: a ConvTranspose.
        kernel: the spatial axes of its weight.
    """
    values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    strides = values.get("strides", [1] * len(kernel))
    if values.get("group", 1) > 1:
        return "groups"
    if max(strides) > WIDEST_STRIDE:
        return f"strides of more than {WIDEST_STRIDE}"
    if any(size < stride for size, stride in zip(kernel, strides, strict=True)):
        return "a kernel smaller than its stride"
    if max(values.get("dilations", [1])) > 1:
        return "dilation"
    return None
