"""A layer's weights as a matrix with one row per output channel, their scales, and as integers."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from compress.quantize.qparams import SMALLEST_SCALE, IntegerGrid

ChooseScales = Callable[[NDArray[np.float64], IntegerGrid], NDArray[np.float64]]
"""Finds the scale of each row, [channels]: `choose_row_scales` or `widest_scales`."""
CLIP_FACTORS = np.linspace(0.5, 1.0, 26)
STILL_SEARCHED = 0.75
"""Rows that are done are dropped when no more than this share is not."""
SCALE_OF_ZEROS = 2.0**-12


@dataclass(frozen=True, kw_only=True)
class QuantizedWeight:
    """A layer's weight as integers.

    Attributes:
        integers: in the weight's own shape.
        scales: float32; [channels], one per output channel, or with `block` the weight's shape
            with its input axis divided by `block`.
        axis: the axis that scales belong to: the output channels', or with `block` the input's.
        block: weights along `axis` that share a scale; None for one scale per output channel.
        bits: 8, 7 (stored as INT8), or 4 (stored as ONNX INT4).
    """

    integers: NDArray[np.int8]
    scales: NDArray[np.float32]
    axis: int
    block: int | None = None
    bits: int = 8

    @property
    def digest(self) -> str:
        """The same for weights that are stored alike."""
        about = (self.integers.shape, self.axis, self.block, self.bits)
        digest = sha256(repr(about).encode())
        digest.update(self.integers.tobytes())
        digest.update(self.scales.tobytes())
        return digest.hexdigest()

    def dequantize(self) -> NDArray[np.float32]:
        """Returns what the integers stand for."""
        if self.block is not None:
            steps = np.repeat(self.scales, self.block, self.axis)
            return np.asarray(self.integers * steps, np.float32)
        shape = [1] * self.integers.ndim
        shape[self.axis] = -1
        return np.asarray(self.integers * self.scales.reshape(shape), np.float32)


@dataclass(frozen=True)
class WeightLayout:
    """How a weight of some shape becomes rows and back, and which scales its rows have.

    A row holds all weights of one output channel, [input channels, *kernel] flattened. Without
    `block` a row has one scale; with it, one for every `block` input channels at each position of
    the kernel, as ONNX's blocked DequantizeLinear has it.

    Attributes:
        shape: the weight's.
        axis: its output channel axis, 0 or 1; the input axis is the other of the two.
        block: input channels that share a scale; None for one scale per row.
    """

    shape: tuple[int, ...]
    axis: int
    block: int | None = None

    @classmethod
    def of(cls, shape: tuple[int, ...], axis: int, group: int | None) -> "WeightLayout":
        """Returns the layout with blocks of `group` where they divide the input axis evenly.

        A weight that they do not divide keeps one scale per channel, and so does one that would
        get a single scale per row anyway.
        """
        inputs = shape[1 - axis]
        is_blocked = group is not None and inputs % group == 0
        has_one_scale = inputs == group and int(np.prod(shape[2:])) == 1
        return cls(shape, axis, group if is_blocked and not has_one_scale else None)

    @property
    def blocks(self) -> NDArray[np.int64]:
        """Which scale of its row each weight has, [in]."""
        inputs, kernel = self.shape[1 - self.axis], int(np.prod(self.shape[2:]))
        if self.block is None:
            return np.zeros(inputs * kernel, np.int64)
        channel = np.arange(inputs) // self.block
        return np.asarray(channel[:, None] * kernel + np.arange(kernel)).reshape(-1)

    def to_weight(
        self, integers: NDArray[np.int32], scales: NDArray[np.float64], bits: int
    ) -> QuantizedWeight:
        """Returns rows of integers [out, in] and their scales [out, blocks] as a weight."""
        placed = from_rows(integers, self.shape, self.axis).astype(np.int8)
        if self.block is None:
            flat = scales[:, 0].astype(np.float32)
            return QuantizedWeight(integers=placed, scales=flat, axis=self.axis, bits=bits)
        inputs = 1 - self.axis
        shape = list(self.shape)
        shape[inputs] //= self.block
        return QuantizedWeight(
            integers=placed,
            scales=from_rows(scales, tuple(shape), self.axis).astype(np.float32),
            axis=inputs,
            block=self.block,
            bits=bits,
        )


def to_rows(weight: NDArray, axis: int) -> NDArray[np.float64]:
    """Returns the weight as [channels, rest], with `axis` in front."""
    return np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1).astype(np.float64)


def pick_outputs(weight: NDArray, axis: int, groups: int, step: int) -> NDArray:
    """Returns a layer's weight with every `step`-th output channel of each group.

    Args:
        weight: whole.
        axis: of its output channels; 1 in a transposed convolution, which holds those of one group.
        groups: of the convolution; 1 for products.
        step: 1 for all channels.
    """
    if axis != 0:
        return np.asarray(weight.take(np.arange(0, weight.shape[axis], step), axis))
    apart = weight.reshape(groups, -1, *weight.shape[1:])[:, ::step]
    return apart.reshape(-1, *weight.shape[1:])


def from_rows(rows: NDArray, shape: tuple[int, ...], axis: int) -> NDArray:
    """Undoes `to_rows`: [channels, rest] back to a weight of `shape`."""
    front = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(rows.reshape(front), 0, axis))


def choose_row_scales(rows: NDArray[np.float64], grid: IntegerGrid) -> NDArray[np.float64]:
    """Returns the scale of each row, [channels], with the least squared rounding error.

    Searched over 26 factors on the row's largest value, from 1 down; scales are rounded to float32,
    as they are stored. What is clipped loses more with each smaller scale, and all else half a step
    at most: a row is done when what it loses by clipping alone is more than its least error.
    """
    widest = widest_scales(rows, grid)
    best = widest.astype(np.float32).astype(np.float64)
    best_error = np.full(len(rows), np.inf)
    searched = np.arange(len(rows))
    for factor in CLIP_FACTORS[::-1]:
        scales = (widest[searched] * factor).astype(np.float32).astype(np.float64)
        error = _rounding_error(rows, scales, grid)
        is_better = error < best_error[searched]
        best[searched[is_better]] = scales[is_better]
        best_error[searched[is_better]] = error[is_better]
        clipping_error = error - rows.shape[1] * np.square(scales / 2)
        may_gain = clipping_error < best_error[searched]
        if not may_gain.any():
            break
        if np.count_nonzero(may_gain) <= STILL_SEARCHED * len(searched):
            searched, rows = searched[may_gain], rows[may_gain]
    return best


def _rounding_error(
    rows: NDArray[np.float64], scales: NDArray[np.float64], grid: IntegerGrid
) -> NDArray[np.float64]:
    """Returns the squared error of each row, [channels], rounded in steps of its scale."""
    difference = rows / scales[:, None]
    limits = grid.limits(difference)
    np.rint(difference, out=difference)
    np.clip(difference, *limits, out=difference)
    difference *= scales[:, None]
    difference -= rows
    return np.asarray(np.einsum("ij,ij->i", difference, difference))


def widest_scales(rows: NDArray[np.float64], grid: IntegerGrid) -> NDArray[np.float64]:
    """Returns the scale of each row that reaches its largest value (or pair of values).

    A row of zeros gets the median of the others, or SCALE_OF_ZEROS: its bias may be stored in
    steps of the scale, and 1 would be too coarse for it.
    """
    peaks = grid.reach(rows)
    is_used = peaks > SMALLEST_SCALE
    typical = float(np.median(peaks[is_used])) if is_used.any() else SCALE_OF_ZEROS
    return np.where(is_used, peaks, typical)


def choose_block_scales(
    rows: NDArray[np.float64],
    blocks: NDArray[np.int64],
    grid: IntegerGrid,
    choose_scales: ChooseScales = choose_row_scales,
) -> NDArray[np.float64]:
    """Returns the scale of each block of each row, [channels, blocks]."""
    count = int(blocks.max()) + 1
    return np.stack(
        [choose_scales(rows[:, blocks == index], grid) for index in range(count)], axis=1
    )
