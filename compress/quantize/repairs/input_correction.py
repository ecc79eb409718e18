"""Weights that make up for the errors of a layer's inputs, as its bias does for their mean.

With x the float inputs and q those of the quantized prefix, rounded for the layer, W q is not the
best that can be made of q: W A comes closest to the float output W x, with A = C H^-1 from the
second moments C = E[x q'] and H = E[q q'] around the means. Where padding takes the place of a
share s of the inputs, the bias makes up for the rest of the mean only, and s of its square counts.
What clipping and rounding do to a
tensor, they do position by position, so A mixes channels only and is the same at every position of
a kernel: it has few numbers, which few pictures can tell. GPTAQ (Li et al., 2025) and Qronos
(Zhang et al., 2025) correct the whole window of inputs, and round column by column.

A ridge in units of each channel's variance holds A near the identity. It is the one whose rounded
weights leave the smallest share of the error with W, on average over held-out pictures, each of
which counts alike: one picture with values that no other has must not decide for all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.blas_threads import import_linalg
from compress.quantize.graph import Array, attribute
from compress.quantize.layer_weights import from_rows, pick_outputs, widest_scales
from compress.quantize.qparams import IntegerGrid, QParams, fake_quantize
from compress.quantize.repairs.trial_rounding import round_weight
from compress.quantize.rounding.moments import Columns, multiply_groups
from compress.quantize.rounding.round_layer import grouped_rows, is_held_out
from compress.quantize.side_by_side import map_ahead

COLUMNS = 4096
"""Positions that are looked at, of all pictures together."""
JUDGED_ROWS = 256
"""Rows of the weight, one per output channel and kernel position, whose errors are measured."""
LARGE = 512
"""Unknowns from which a system's solution is worth the import of scipy."""
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
        covered: share of the weights that meets an input, and no zero around it.
    """

    samples: int
    read: Callable[[int], tuple[Array, Array]]
    qparams: QParams | None
    is_centered: bool
    covered: float


@dataclass(frozen=True, kw_only=True)
class InputColumns:
    """A layer's inputs at positions that were drawn of all pictures.

    Attributes:
        errors: [groups, in, n] float32, d = x - q.
        inputs: [groups, in, n] float32, q.
        pictures: [n], the picture of each position.
    """

    errors: Columns
    inputs: Columns
    pictures: NDArray[np.intp]

    def centered(self, covered: float) -> "InputColumns":
        """Returns the columns around what the bias makes up for, all of the mean without padding.

        Of products of two columns, 1 - covered of the product of their means is left.
        """
        taken = np.float32(1 - np.sqrt(max(1 - covered, 0)))
        return replace(
            self,
            errors=self.errors - taken * self.errors.mean(axis=2, keepdims=True),
            inputs=self.inputs - taken * self.inputs.mean(axis=2, keepdims=True),
        )

    def of_pictures(self, chosen: NDArray[np.bool_]) -> "InputColumns":
        """Returns some of the columns, where `chosen` [n] says so."""
        return InputColumns(
            errors=self.errors[:, :, chosen],
            inputs=self.inputs[:, :, chosen],
            pictures=self.pictures[chosen],
        )

    def judge(self, rows: Real) -> Callable[[Real], Real]:
        """Returns what tells the mean squared error of W x that a change of W leaves.

        It is that of W d less the change times q. Where channels have many outputs, a triangle
        takes the place of both weights: what it makes is as long (QR decomposition).

        Args:
            rows: W, [groups, out, in].

        Returns:
            a function from a change, as W, to [pictures].
        """
        is_tall = rows.shape[1] > 2 * rows.shape[2]
        wanted = None if is_tall else rows.astype(np.float32) @ self.errors
        _, places, counts = np.unique(self.pictures, return_inverse=True, return_counts=True)

        def measure(change: Real) -> Real:
            if wanted is not None:
                left = wanted - change.astype(np.float32) @ self.inputs
            else:
                both = np.asarray(np.linalg.qr(np.concatenate([rows, -change], 2), mode="r"))
                ours, theirs = np.split(both.astype(np.float32), 2, axis=2)
                left = ours @ self.errors + theirs @ self.inputs
            return np.bincount(places, np.einsum("gon,gon->n", left, left)) / counts

        return measure


@dataclass(frozen=True, kw_only=True)
class ErrorMoments:
    """Mean products of the errors d and the inputs q, each [groups, in, in].

    Attributes:
        cross: E[d q'].
        hessian: E[q q'].
        count: positions that were looked at.
    """

    cross: Real
    hessian: Real
    count: int

    def joined(self, other: "ErrorMoments") -> "ErrorMoments":
        """Returns the moments of both sets of positions."""
        count = self.count + other.count
        own, their = self.count / count, other.count / count
        return ErrorMoments(
            cross=own * self.cross + their * other.cross,
            hessian=own * self.hessian + their * other.hessian,
            count=count,
        )

    def find_change(self, aim: Real, ridge: float) -> Real:
        """Returns W B with B = A - I, [groups, out, in].

        Args:
            aim: W E[d q'], [groups, out, in].
            ridge: in units of each channel's variance.
        """
        variance = np.einsum("gii->gi", self.hessian)
        least = max(_SMALLEST_SHARE * float(variance.max()), np.finfo(np.float64).tiny)
        added = ridge * np.maximum(variance, least)
        damped = self.hessian + np.eye(variance.shape[1]) * added[:, None, :]
        return _solve(damped, aim.transpose(0, 2, 1)).transpose(0, 2, 1)


def _solve(matrices: Real, right: Real) -> Real:
    """Returns what positive definite [groups, n, n] times it is `right`, [groups, n, m].

    Of a single large one Cholesky's factors take half of the time of LU's.
    """
    if len(matrices) > 1 or matrices.shape[-1] < LARGE:
        return np.asarray(np.linalg.solve(matrices, right))
    linalg = import_linalg()
    factors = linalg.cho_factor(matrices[0], lower=True, check_finite=False)
    return np.asarray(linalg.cho_solve(factors, right[0], check_finite=False))[None]


def measure_moments(parts: Sequence[InputColumns]) -> list[ErrorMoments]:
    """Returns the moments of some sets of columns, whose products take most of a correction."""
    pairs = [(left, part.inputs) for part in parts for left in (part.errors, part.inputs)]
    products = map_ahead(lambda pair: multiply_groups(*pair).astype(np.float64), pairs)
    found = []
    for part in parts:
        count = part.inputs.shape[2]
        cross, hessian = next(products) / count, next(products) / count
        found.append(ErrorMoments(cross=cross, hessian=hessian, count=count))
    return found


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

    def count_rows(self) -> int:
        """Returns how many rows all groups have together."""
        outputs = self.shape[self.axis] * (self.groups if self.axis else 1)
        return outputs * self._kernel

    @property
    def _kernel(self) -> int:
        return int(np.prod(self.shape[2:]))


def correct_for_inputs(
    node: onnx.NodeProto, weight: Array, axis: int, grid: IntegerGrid | None, inputs: ChannelInputs
) -> Array | None:
    """Returns a layer's corrected weight; None where held-out pictures do not gain from it.

    None too where there are fewer than FEWEST_PICTURES, or fewer positions than input channels, and
    where the held-out pictures have none (no region of interest).

    Args:
        node: a Conv, ConvTranspose, Gemm or MatMul.
        weight: its constant second input.
        axis: the weight's output channel axis.
        grid: the integers that weights will be rounded to; None where they stay in float.
        inputs: of the layer.
    """
    if inputs.samples < FEWEST_PICTURES:
        return None
    is_product = node.op_type in ("Gemm", "MatMul")
    groups = 1 if is_product else attribute(node, "group", 1)
    columns = _read_columns(inputs, groups, is_product=is_product)
    outside = np.array([is_held_out(picture) for picture in columns.pictures], bool)
    is_told = np.count_nonzero(~outside) >= columns.inputs.shape[1] and outside.any()
    if not is_told or not columns.errors.any():
        return None
    layout = ChannelRows(weight.shape, axis, groups)
    judged = pick_outputs(weight, axis, groups, -(-layout.count_rows() // JUDGED_ROWS))
    some = ChannelRows(judged.shape, axis, groups)
    rows = some.split(judged)

    def rounded_change(change: Real | None) -> Real:
        changed = judged if change is None else some.join(rows + change)
        kept = changed if grid is None else round_weight(changed, axis, grid, widest_scales)
        return some.split(kept) - rows

    held_out = columns.of_pictures(outside)
    fit, others = measure_moments([columns.of_pictures(~outside), held_out])
    output_errors = held_out.judge(rows)
    before, aim = output_errors(rounded_change(None)), rows @ fit.cross

    def remaining(ridge: float) -> float:
        change = rounded_change(fit.find_change(aim, ridge))
        after = output_errors(change)
        return float(np.mean(after / np.maximum(before, np.finfo(np.float64).tiny)))

    shares = dict(zip(RIDGES, map_ahead(remaining, RIDGES), strict=True))
    best = min(shares, key=shares.__getitem__)
    if not shares[best] < LEAST_GAIN:
        return None
    whole, rows = fit.joined(others), layout.split(weight)
    change = whole.find_change(rows @ whole.cross, best)
    return layout.join(rows + change).astype(np.float32)


def _read_columns(inputs: ChannelInputs, groups: int, *, is_product: bool) -> InputColumns:
    rng = np.random.default_rng(0)
    each = -(-COLUMNS // inputs.samples)
    errors, rounded, pictures = [], [], []
    for sample in range(inputs.samples):
        wanted, got = (
            _as_columns(value, groups, is_product=is_product) for value in inputs.read(sample)
        )
        count = wanted.shape[2]
        chosen = rng.choice(count, each, replace=False) if count > each else np.arange(count)
        read = got[:, :, chosen]
        rounded.append(fake_quantize(read, inputs.qparams) if inputs.qparams else read)
        errors.append(wanted[:, :, chosen] - rounded[-1])
        pictures.append(np.full(len(chosen), sample))
    columns = InputColumns(
        errors=np.concatenate(errors, 2),
        inputs=np.concatenate(rounded, 2),
        pictures=np.concatenate(pictures),
    )
    has_any = columns.pictures.size > 0
    return columns.centered(inputs.covered) if inputs.is_centered and has_any else columns


def _as_columns(value: Array, groups: int, *, is_product: bool) -> Array:
    """Returns [groups, in, positions] of an input [N, in, ...] (a product's: [..., in])."""
    channels = np.moveaxis(value, -1 if is_product else 1, 0)
    return channels.reshape(groups, len(channels) // groups, -1)
