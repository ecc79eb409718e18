"""ONNX operators with weights, and pools, in torch."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from artifacts.errors import InputError

Values = Sequence[Any]
Attributes = dict[str, Any]
_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def convolve(values: Values, attributes: Attributes) -> Any:
    """Conv: [N, C, ...] with weights [out, in / groups, ...]."""
    x, weight, bias = [*values, None][:3]
    rank = weight.ndim - 2
    dilations = attributes.get("dilations", [1] * rank)
    strides = attributes.get("strides", [1] * rank)
    begins, ends = _pads(attributes, x, weight.shape[2:], strides, dilations)
    if begins != ends:
        x, begins = _pad(x, begins, ends, 0.0), [0] * rank
    groups = attributes.get("group", 1)
    return _CONVOLUTIONS[rank](x, weight, bias, strides, begins, dilations, groups)


def convolve_transposed(values: Values, attributes: Attributes) -> Any:
    """ConvTranspose: weights [in, out / groups, ...]."""
    x, weight, bias = [*values, None][:3]
    rank = weight.ndim - 2
    if attributes.get("auto_pad", b"NOTSET") != b"NOTSET" or "output_shape" in attributes:
        raise InputError("ConvTranspose with auto_pad or output_shape", "explicit pads")
    pads = attributes.get("pads", [0] * 2 * rank)
    begins, ends = pads[:rank], pads[rank:]
    extra = attributes.get("output_padding", [0] * rank)
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    groups = attributes.get("group", 1)
    full = _TRANSPOSED[rank](x, weight, bias, strides, 0, 0, groups, dilations)
    for axis in range(rank):
        length = full.shape[2 + axis] - begins[axis] - ends[axis] + extra[axis]
        missing = begins[axis] + length - full.shape[2 + axis]
        if missing > 0:
            raise InputError("ConvTranspose whose output_padding exceeds its pads", "smaller one")
        full = full.narrow(2 + axis, begins[axis], length)
    return full


def multiply_general(values: Values, attributes: Attributes) -> Any:
    """Gemm: alpha A' B' + beta C."""
    left, right, *rest = values
    left = left.T if attributes.get("transA", 0) else left
    right = right.T if attributes.get("transB", 0) else right
    product = left @ right
    if attributes.get("alpha", 1.0) != 1.0:
        product = product * attributes["alpha"]
    if rest and rest[0] is not None:
        beta = attributes.get("beta", 1.0)
        product = product + (rest[0] if beta == 1.0 else beta * rest[0])
    return product


def normalize_batch(values: Values, attributes: Attributes) -> Any:
    """BatchNormalization as in inference."""
    x, scale, bias, mean, variance = values
    epsilon = attributes.get("epsilon", 1e-5)
    return F.batch_norm(x, mean, variance, scale, bias, training=False, eps=epsilon)


def normalize_layer(values: Values, attributes: Attributes) -> Any:
    """LayerNormalization over the last axes."""
    x, scale, bias = [*values, None][:3]
    axis = attributes.get("axis", -1) % x.ndim
    return F.layer_norm(x, x.shape[axis:], scale, bias, attributes.get("epsilon", 1e-5))


def normalize_instance(values: Values, attributes: Attributes) -> Any:
    """InstanceNormalization."""
    x, scale, bias = values
    return F.instance_norm(x, weight=scale, bias=bias, eps=attributes.get("epsilon", 1e-5))


def normalize_group(values: Values, attributes: Attributes) -> Any:
    """GroupNormalization, with a scale and a bias per channel."""
    x, scale, bias = values
    return F.group_norm(x, attributes["num_groups"], scale, bias, attributes.get("epsilon", 1e-5))


def pool_maximum(values: Values, attributes: Attributes) -> Tensor:
    """MaxPool without indices."""
    x: Tensor = values[0]
    kernel = attributes["kernel_shape"]
    rank = len(kernel)
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    begins, ends = _pads(attributes, x, kernel, strides, dilations)
    x = _pad(x, begins, ends, -torch.inf)
    is_ceil = bool(attributes.get("ceil_mode", 0))
    return _MAX_POOLS[rank](x, kernel, strides, 0, dilations, is_ceil)


def pool_average(values: Values, attributes: Attributes) -> Tensor:
    """AveragePool over one to three axes."""
    x: Tensor = values[0]
    kernel = attributes["kernel_shape"]
    rank = len(kernel)
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    if max(dilations) > 1:
        raise InputError("AveragePool with dilations", "none")
    begins, ends = _pads(attributes, x, kernel, strides, dilations)
    counts_pad = bool(attributes.get("count_include_pad", 0))
    is_ceil = bool(attributes.get("ceil_mode", 0))
    pool = _AVERAGE_POOLS[rank]
    if begins == ends:
        return pool(x, kernel, strides, begins, is_ceil, counts_pad)
    means = pool(_pad(x, begins, ends, 0.0), kernel, strides, 0, is_ceil)
    if counts_pad:
        return means
    inside = torch.ones_like(x[:1, :1])
    return means / pool(_pad(inside, begins, ends, 0.0), kernel, strides, 0, is_ceil)


def _pads(
    attributes: Attributes,
    x: Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Returns what is added before and after each axis."""
    rank = len(kernel)
    mode = attributes.get("auto_pad", b"NOTSET")
    if mode in (b"NOTSET", b""):
        pads = attributes.get("pads", [0] * 2 * rank)
        return list(pads[:rank]), list(pads[rank:])
    if mode == b"VALID":
        return [0] * rank, [0] * rank
    begins, ends = [], []
    for axis in range(rank):
        size = x.shape[2 + axis]
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = max((-(-size // strides[axis]) - 1) * strides[axis] + reach - size, 0)
        less, more = total // 2, total - total // 2
        begins.append(more if mode == b"SAME_LOWER" else less)
        ends.append(less if mode == b"SAME_LOWER" else more)
    return begins, ends


def _pad(x: Tensor, begins: Sequence[int], ends: Sequence[int], value: float) -> Tensor:
    if not any(begins) and not any(ends):
        return x
    flat = [size for pair in zip(reversed(begins), reversed(ends), strict=True) for size in pair]
    return F.pad(x, flat, value=value)
