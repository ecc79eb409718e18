"""Weights that make up for the errors of a layer's inputs, as its bias does for their mean.

With x the float inputs and q those of the quantized prefix, rounded for the layer, W q is not the
best that can be made of q: W A comes closest to the float output W x, with A = C H^-1 from the
second moments C = E[x q'] and H = E[q q'] around the means. What clipping and rounding do to a
tensor, they do position by position, so A mixes channels only and is the same at every position of
a kernel: it has few numbers, which few pictures can tell. GPTAQ (Li et al., 2025) and Qronos
(Zhang et al., 2025) correct the whole window of inputs, and round column by column.

A ridge in units of each channel's variance holds A near the identity. It is the one whose rounded
weights have the least error on held-out pictures, where that is enough less than with W.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.graph import Array, attribute
from compress.quantize.layer_weights import from_rows, widest_scales
from compress.quantize.qparams import IntegerGrid, QParams, fake_quantize
from compress.quantize.repairs.trial_rounding import round_weight
from compress.quantize.rounding.moments import multiply_groups
from compress.quantize.rounding.round_layer import grouped_rows, is_held_out

COLUMNS = 4096
"""Positions that are looked at, of all pictures together."""
RIDGES = (1.0, 0.1, 0.01)
LEAST_GAIN = 0.98
FEWEST_PICTURES = 4
_SMALLEST_SHARE = 1e-9

Real = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ChannelInputs:
    """A layer's first input on the calibration pictures.

    Attributes:
        samples: how many pictures there are.
        read: returns a picture's input in the float network, and in the quantized prefix.
        qparams: of the layer's own quantizer; None where it reads its input in float.
        is_centered: whether the layer's bias makes up for what happens to the mean.
    """

    samples: int
    read: Callable[[int], tuple[Array, Array]]
    qparams: QParams | None
    is_centered: bool


@dataclass(frozen=True, kw_only=True)
class ErrorMoments:
    """Mean products of the errors d = x - q and the inputs q, each [groups, in, in].

    Attributes:
        noise: E[d d'].
        cross: E[d q'].
        hessian: E[q q'].
        columns: how many there were.
    """

    noise: Real
    cross: Real
    hessian: Real
    columns: int

    @classmethod
    def of(cls, plain: Array, quantized: Array, *, is_centered: bool) -> "ErrorMoments":
        """Returns the moments of columns [groups, in, n]."""
        both = np.concatenate([plain - quantized, quantized], axis=1)
        if is_centered:
            both -= both.mean(axis=2, keepdims=True)
        products = multiply_groups(both, both).astype(np.float64) / both.shape[2]
        size = plain.shape[1]
        return cls(
            columns=both.shape[2],
            noise=products[:, :size, :size],
            cross=products[:, :size, size:],
            hessian=products[:, size:, size:],
        )

    def joined(self, other: "ErrorMoments") -> "ErrorMoments":
        """Returns the moments over the columns of both, each around its own mean."""
        columns = self.columns + other.columns
        mine = self.columns / columns
        return ErrorMoments(
            columns=columns,
            noise=mine * self.noise + (1 - mine) * other.noise,
            cross=mine * self.cross + (1 - mine) * other.cross,
            hessian=mine * self.hessian + (1 - mine) * other.hessian,
        )

    def find_mix(self, ridge: float) -> Real:
        """Returns B = A - I, [groups, in, in]."""
        variance = np.einsum("gii->gi", self.hessian)
        least = max(_SMALLEST_SHARE * float(variance.max()), np.finfo(np.float64).tiny)
        added = ridge * np.maximum(variance, least)
        damped = self.hessian + np.eye(variance.shape[1]) * added[:, None, :]
        return np.asarray(np.linalg.solve(damped, self.cross.transpose(0, 2, 1))).transpose(0, 2, 1)

    def output_error(self, rows: Real, change: Real) -> float:
        """Returns E |W x - (W + V) q|^2, with `rows` W and `change` V, both [groups, out, in]."""
        error = np.sum((rows @ self.noise) * rows) - 2 * np.sum((rows @ self.cross) * change)
        return float(error + np.sum((change @ self.hessian) * change))


@dataclass(frozen=True)
class ChannelRows:
    """A weight as rows of input channels, one per group, output channel and kernel position.

    Attributes:
        shape: the weight's.
        axis: its output channel axis.
        groups: of the convolution.
    """

    shape: tuple[int, ...]
    axis: int
    groups: int

    def split(self, weight: Array) -> Real:
        """Returns [groups, out * kernel, in]."""
        rows = grouped_rows(weight, self.axis, self.groups).astype(np.float64)
        parts = rows.reshape(*rows.shape[:2], -1, self._kernel).transpose(0, 1, 3, 2)
        return parts.reshape(self.groups, -1, parts.shape[3])

    def join(self, rows: Real) -> Real:
        """Undoes `split`."""
        parts = rows.reshape(self.groups, -1, self._kernel, rows.shape[2]).transpose(0, 1, 3, 2)
        if self.axis == 0 or self.groups == 1:
            return from_rows(parts.reshape(self.shape[self.axis], -1), self.shape, self.axis)
        shape = (self.shape[0] // self.groups, *self.shape[1:])
        each = [from_rows(part.reshape(shape[1], -1), shape, 1) for part in parts]
        return np.concatenate(each)

    @property
    def _kernel(self) -> int:
        return int(np.prod(self.shape[2:]))


def correct_for_inputs(
    node: onnx.NodeProto, weight: Array, axis: int, grid: IntegerGrid, inputs: ChannelInputs
) -> Array | None:
    """Returns a layer's corrected weight; None where held-out pictures do not gain from it.

    None too where there are fewer than FEWEST_PICTURES, or fewer positions than input channels.

    Args:
        node: a Conv, ConvTranspose, Gemm or MatMul.
        weight: its constant second input.
        axis: the weight's output channel axis.
        grid: the integers that weights will be rounded to.
        inputs: of the layer.
    """
    if inputs.samples < FEWEST_PICTURES:
        return None
    is_product = node.op_type in ("Gemm", "MatMul")
    layout = ChannelRows(weight.shape, axis, 1 if is_product else attribute(node, "group", 1))
    plain, quantized, outside = _read_columns(inputs, layout.groups, is_product=is_product)
    if np.count_nonzero(~outside) < plain.shape[1]:
        return None

    def moments(chosen: NDArray[np.bool_]) -> ErrorMoments:
        return ErrorMoments.of(
            plain[:, :, chosen], quantized[:, :, chosen], is_centered=inputs.is_centered
        )

    fit, held_out = moments(~outside), moments(outside)
    rows = layout.split(weight)

    def rounded_error(mix: Real | None) -> float:
        mixed = weight if mix is None else layout.join(rows + rows @ mix)
        change = layout.split(round_weight(mixed, axis, grid, widest_scales)) - rows
        return held_out.output_error(rows, change)

    errors = {ridge: rounded_error(fit.find_mix(ridge)) for ridge in RIDGES}
    best = min(errors, key=errors.__getitem__)
    if not errors[best] < LEAST_GAIN * rounded_error(None):
        return None
    mix = fit.joined(held_out).find_mix(best)
    return layout.join(rows + rows @ mix).astype(np.float32)


def _read_columns(
    inputs: ChannelInputs, groups: int, *, is_product: bool
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Returns float and rounded inputs [groups, in, n], and which of the n are held out."""
    rng = np.random.default_rng(0)
    each = -(-COLUMNS // inputs.samples)
    plain, quantized, held_out = [], [], []
    for sample in range(inputs.samples):
        wanted, got = (
            _as_columns(value, groups, is_product=is_product) for value in inputs.read(sample)
        )
        count = wanted.shape[2]
        chosen = rng.choice(count, each, replace=False) if count > each else np.arange(count)
        plain.append(wanted[:, :, chosen])
        read = got[:, :, chosen]
        quantized.append(fake_quantize(read, inputs.qparams) if inputs.qparams else read)
        held_out.append(np.full(len(chosen), is_held_out(sample)))
    return np.concatenate(plain, 2), np.concatenate(quantized, 2), np.concatenate(held_out)


def _as_columns(value: Array, groups: int, *, is_product: bool) -> Array:
    """Returns [groups, in, positions] of an input [N, in, ...] (a product's: [..., in])."""
    channels = np.moveaxis(value, -1 if is_product else 1, 0)
    return channels.reshape(groups, len(channels) // groups, -1)
