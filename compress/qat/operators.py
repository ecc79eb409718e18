"""ONNX operators in torch, by name: each takes its inputs and attributes, and returns its result.

Missing optional inputs are None. Shapes and indices arrive as integer tensors, as in ONNX. A
Python library that does this exists (onnx2torch), but it knows neither Q/DQ with INT4 nor opset 21,
and turns constants into buffers whose names are lost; the names are what we train by.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch
from onnx import numpy_helper
from torch import Tensor
from torch.nn import functional as F

from artifacts.errors import InputError
from compress.qat.decoder_operators import (
    find_extreme,
    gather_elements,
    gather_places,
    keep_triangle,
    sample_grid,
    scatter_elements,
    scatter_places,
    space_to_depth,
    sum_up,
    take_top,
)
from compress.qat.layer_operators import (
    Attributes,
    Values,
    convolve,
    convolve_transposed,
    multiply_general,
    normalize_batch,
    normalize_group,
    normalize_instance,
    normalize_layer,
    pool_average,
    pool_maximum,
)
from compress.qat.recurrent_operators import run_gru, run_lstm, run_rnn

Operator = Callable[[Values, Attributes], Any]
_TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 11: torch.float64}


def _elementwise(function: Callable[..., Tensor]) -> Operator:
    return lambda values, attributes: function(*values)


def _of_all(function: Callable[..., Tensor]) -> Operator:
    """Returns an operator that takes any number of inputs, two at a time."""
    return lambda values, attributes: reduce(function, values)


def _clip(values: Values, attributes: Attributes) -> Any:
    x, low, high = [*values, None, None][:3]
    low = attributes.get("min") if low is None else low
    high = attributes.get("max") if high is None else high
    if low is not None:
        x = torch.maximum(x, torch.as_tensor(low, dtype=x.dtype, device=x.device))
    if high is not None:
        x = torch.minimum(x, torch.as_tensor(high, dtype=x.dtype, device=x.device))
    return x


def _prelu(values: Values, attributes: Attributes) -> Any:
    x, slope = values
    return torch.where(x >= 0, x, x * slope)


def _gelu(values: Values, attributes: Attributes) -> Tensor:
    kind = attributes.get("approximate", b"none").decode()
    activated: Tensor = F.gelu(values[0], approximate=kind)
    return activated


def _reshape(values: Values, attributes: Attributes) -> Any:
    x, shape = values
    sizes = _integers(shape)
    if not attributes.get("allowzero", 0):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


def _flatten(values: Values, attributes: Attributes) -> Tensor:
    x: Tensor = values[0]
    axis = attributes.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), -1)


def _squeeze(values: Values, attributes: Attributes) -> Tensor:
    x: Tensor = values[0]
    axes = _axes(values, attributes)
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(values: Values, attributes: Attributes) -> Tensor:
    x: Tensor = values[0]
    axes = _axes(values, attributes) or []
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _concat(values: Values, attributes: Attributes) -> Tensor:
    """Joins; what is the same for all samples of a batch (a class token) is repeated."""
    axis = attributes["axis"]
    count = max(len(x) for x in values)
    if axis not in (0, -values[0].ndim):
        values = [x.expand(count, *x.shape[1:]) if len(x) == 1 else x for x in values]
    return torch.cat(list(values), axis)


def _split(values: Values, attributes: Attributes) -> tuple[Tensor, ...]:
    x: Tensor = values[0]
    axis = attributes.get("axis", 0)
    if len(values) > 1 and values[1] is not None:
        return tuple(x.split(_integers(values[1]), axis))
    if "split" in attributes:
        return tuple(x.split(attributes["split"], axis))
    count = int(attributes.get("num_outputs", 0)) or int(attributes["_outputs"])
    return tuple(x.split(-(-x.shape[axis] // count), axis))


def _slice(values: Values, attributes: Attributes) -> Any:
    x, *limits = values
    if not limits:
        limits = [attributes["starts"], attributes["ends"], attributes.get("axes")]
    starts, ends, axes, steps = [*map(_integers_or_empty, limits), [], []][:4]
    axes = axes or list(range(len(starts)))
    steps = steps or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        chosen = range(x.shape[axis])[slice(start, max(end, -(2**62)), step)]
        if step == 1:
            x = x.narrow(axis, chosen.start, len(chosen))
        else:
            x = x.index_select(axis, torch.tensor(list(chosen), device=x.device))
    return x


def _gather(values: Values, attributes: Attributes) -> Any:
    x, indices = values
    axis = attributes.get("axis", 0) % x.ndim
    flat = x.index_select(axis, torch.remainder(indices.reshape(-1), x.shape[axis]))
    return flat.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def _pad(values: Values, attributes: Attributes) -> Any:
    x, pads, value, axes = [*values, None, None, None][:4]
    mode = attributes.get("mode", b"constant").decode()
    sizes = _integers(pads) if pads is not None else attributes["pads"]
    chosen = _integers(axes) if axes is not None else list(range(x.ndim))
    ends = {axis % x.ndim: sizes[place :: len(chosen)] for place, axis in enumerate(chosen)}
    if mode == "constant":
        flat = [size for axis in reversed(range(x.ndim)) for size in ends.get(axis, (0, 0))]
        return F.pad(x, flat, value=0.0 if value is None else float(value))
    for axis, (begin, end) in ends.items():
        if begin == end == 0:
            continue
        kept = np.arange(x.shape[axis])[max(-begin, 0) : x.shape[axis] - max(-end, 0)]
        places = np.pad(kept, (max(begin, 0), max(end, 0)), mode)
        x = x.index_select(axis, torch.from_numpy(places).to(x.device))
    return x


def _over_axes(function: Callable[..., Tensor]) -> Operator:
    def run(values: Values, attributes: Attributes) -> Tensor:
        x: Tensor = values[0]
        axes = _axes(values, attributes)
        axes = list(range(x.ndim)) if axes is None else axes
        return function(x, axes, bool(attributes.get("keepdims", 1)))

    return run


_LINEAR = {4: "bilinear", 5: "trilinear"}
_CORNERS = {"half_pixel": False, "pytorch_half_pixel": False, "align_corners": True}
"""Places that PyTorch resizes by too, and whether it calls them aligned corners."""


def _resize(values: Values, attributes: Attributes) -> Any:
    x, _, scales, sizes = [*values, None, None, None][:4]
    mode = attributes.get("mode", b"nearest").decode()
    place = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    axes = [axis % x.ndim for axis in attributes.get("axes", range(x.ndim))]
    wanted = list(x.shape)
    if sizes is not None:
        for axis, size in zip(axes, _integers(sizes), strict=True):
            wanted[axis] = size if axis else len(x)
    else:
        for axis, scale in zip(axes, scales.tolist(), strict=True):
            wanted[axis] = int(x.shape[axis] * scale)
    if mode == "linear" and x.ndim in _LINEAR and place in _CORNERS:
        return F.interpolate(
            x, size=wanted[2:], mode=_LINEAR[x.ndim], align_corners=_CORNERS[place]
        )
    whole = all(n % o == 0 for n, o in zip(wanted, x.shape, strict=True))
    is_floor = attributes.get("nearest_mode") == b"floor" and place == "asymmetric"
    if mode == "nearest" and (whole or (is_floor and sizes is not None)):
        return _take_nearest(x, wanted)
    raise InputError(
        f"Resize {mode} of {list(x.shape)} to {wanted} ({place})",
        "nearest by whole factors or as PyTorch exports it (asymmetric, floor, to a size), or "
        "linear with half_pixel or align_corners",
    )


def _take_nearest(x: Tensor, shape: list[int]) -> Tensor:
    """Returns `x` in another size: of each place the value that begins before it."""
    for axis, (new, old) in enumerate(zip(shape, x.shape, strict=True)):
        if new % old == 0:
            x = x.repeat_interleave(new // old, axis) if new != old else x
        else:
            places = torch.arange(new, device=x.device) / (new / old)
            x = x.index_select(axis, places.long())
    return x


def _upsample(values: Values, attributes: Attributes) -> Any:
    return _resize([values[0], None, values[1]], attributes)


def _depth_to_space(values: Values, attributes: Attributes) -> Any:
    x, size = values[0], attributes["blocksize"]
    if attributes.get("mode", b"DCR") == b"CRD":
        return F.pixel_shuffle(x, size)
    n, c, h, w = x.shape
    x = x.reshape(n, size, size, c // size**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // size**2, h * size, w * size)


def _constant(values: Values, attributes: Attributes) -> Tensor:
    for name in ("value_float", "value_int", "value_floats", "value_ints"):
        if name in attributes:
            return torch.tensor(attributes[name])
    return torch.from_numpy(np.array(numpy_helper.to_array(attributes["value"])))


def _constant_of_shape(values: Values, attributes: Attributes) -> Tensor:
    filler = attributes.get("value")
    fill = numpy_helper.to_array(filler) if filler is not None else np.zeros(1, np.float32)
    return torch.from_numpy(np.full(_integers(values[0]), fill[0], fill.dtype))


def _axes(values: Values, attributes: Attributes) -> list[int] | None:
    if len(values) > 1 and values[1] is not None:
        return _integers(values[1])
    axes: list[int] | None = attributes.get("axes")
    return axes


def _integers(tensor: Any) -> list[int]:
    return [int(value) for value in (tensor.tolist() if isinstance(tensor, Tensor) else tensor)]


def _integers_or_empty(tensor: Any) -> list[int]:
    return [] if tensor is None else _integers(tensor)


OPERATORS: dict[str, Operator] = {
    "Conv": convolve,
    "ConvTranspose": convolve_transposed,
    "Gemm": multiply_general,
    "MatMul": _elementwise(torch.matmul),
    "BatchNormalization": normalize_batch,
    "LayerNormalization": normalize_layer,
    "InstanceNormalization": normalize_instance,
    "GroupNormalization": normalize_group,
    "MaxPool": pool_maximum,
    "AveragePool": pool_average,
    "GlobalAveragePool": lambda v, a: v[0].mean(tuple(range(2, v[0].ndim)), keepdim=True),
    "GlobalMaxPool": lambda v, a: v[0].amax(tuple(range(2, v[0].ndim)), keepdim=True),
    "Add": _elementwise(torch.add),
    "Sub": _elementwise(torch.sub),
    "Mul": _elementwise(torch.mul),
    "Div": lambda v, a: v[0] / v[1] if v[0].is_floating_point() else v[0] // v[1],
    "Pow": _elementwise(torch.pow),
    "Mod": lambda v, a: torch.fmod(*v) if a.get("fmod", 0) else torch.remainder(*v),
    "Min": _of_all(torch.minimum),
    "Max": _of_all(torch.maximum),
    "Sum": _of_all(torch.add),
    "Mean": lambda v, a: reduce(torch.add, v) / len(v),
    "Neg": _elementwise(torch.neg),
    "Abs": _elementwise(torch.abs),
    "Sqrt": _elementwise(torch.sqrt),
    "Exp": _elementwise(torch.exp),
    "Log": _elementwise(torch.log),
    "Sin": _elementwise(torch.sin),
    "Cos": _elementwise(torch.cos),
    "Atan": _elementwise(torch.atan),
    "Sign": _elementwise(torch.sign),
    "Floor": _elementwise(torch.floor),
    "Ceil": _elementwise(torch.ceil),
    "Round": _elementwise(torch.round),
    "Erf": _elementwise(torch.erf),
    "Tanh": _elementwise(torch.tanh),
    "Relu": _elementwise(F.relu),
    "Sigmoid": _elementwise(torch.sigmoid),
    "Softplus": _elementwise(F.softplus),
    "HardSwish": _elementwise(F.hardswish),
    "HardSigmoid": lambda v, a: (a.get("alpha", 0.2) * v[0] + a.get("beta", 0.5)).clamp(0, 1),
    "LeakyRelu": lambda v, a: F.leaky_relu(v[0], a.get("alpha", 0.01)),
    "Mish": _elementwise(F.mish),
    "Selu": _elementwise(F.selu),
    "Softsign": _elementwise(F.softsign),
    "Reciprocal": _elementwise(torch.reciprocal),
    "Elu": lambda v, a: F.elu(v[0], a.get("alpha", 1.0)),
    "Celu": lambda v, a: F.celu(v[0], a.get("alpha", 1.0)),
    "ThresholdedRelu": lambda v, a: v[0] * (v[0] > a.get("alpha", 1.0)),
    "PRelu": _prelu,
    "Gelu": _gelu,
    "Clip": _clip,
    "Softmax": lambda v, a: v[0].softmax(a.get("axis", -1)),
    "LogSoftmax": lambda v, a: v[0].log_softmax(a.get("axis", -1)),
    "LpNormalization": lambda v, a: F.normalize(v[0], a.get("p", 2), a.get("axis", -1)),
    "Greater": _elementwise(torch.gt),
    "GreaterOrEqual": _elementwise(torch.ge),
    "Less": _elementwise(torch.lt),
    "LessOrEqual": _elementwise(torch.le),
    "Equal": _elementwise(torch.eq),
    "And": _elementwise(torch.logical_and),
    "Or": _elementwise(torch.logical_or),
    "Not": _elementwise(torch.logical_not),
    "Where": _elementwise(torch.where),
    "NonZero": lambda v, a: v[0].nonzero().T,
    "ArgMax": find_extreme(torch.argmax),
    "ArgMin": find_extreme(torch.argmin),
    "TopK": take_top,
    "Identity": lambda v, a: v[0],
    "Dropout": lambda v, a: v[0],
    "Cast": lambda v, a: v[0].to(_TYPES[a["to"]]),
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": gather_elements,
    "GatherND": gather_places,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_places,
    "GridSample": sample_grid,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": lambda v, a: v[0].permute(a.get("perm", list(range(v[0].ndim))[::-1])),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": lambda v, a: v[0].expand(torch.broadcast_shapes(v[0].shape, _integers(v[1]))),
    "Tile": lambda v, a: v[0].repeat(_integers(v[1])),
    "Range": _elementwise(torch.arange),
    "Trilu": keep_triangle,
    "CumSum": sum_up,
    "GRU": run_gru,
    "LSTM": run_lstm,
    "RNN": run_rnn,
    "Einsum": lambda v, a: torch.einsum(a["equation"].decode(), *v),
    "Shape": lambda v, a: torch.tensor(v[0].shape[a.get("start", 0) : a.get("end")]),
    "Pad": _pad,
    "ReduceL1": _over_axes(lambda x, axes, keep: x.abs().sum(axes, keep)),
    "ReduceSumSquare": _over_axes(lambda x, axes, keep: x.square().sum(axes, keep)),
    "ReduceLogSumExp": _over_axes(lambda x, axes, keep: x.logsumexp(axes, keep)),
    "ReduceMean": _over_axes(lambda x, axes, keep: x.mean(axes, keep)),
    "ReduceSum": _over_axes(lambda x, axes, keep: x.sum(axes, keep)),
    "ReduceL2": _over_axes(lambda x, axes, keep: x.square().sum(axes, keep).sqrt()),
    "ReduceMin": _over_axes(lambda x, axes, keep: x.amin(axes, keep)),
    "ReduceMax": _over_axes(lambda x, axes, keep: x.amax(axes, keep)),
    "Resize": _resize,
    "Upsample": _upsample,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": space_to_depth,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
}
