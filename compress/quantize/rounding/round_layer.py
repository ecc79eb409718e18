"""Rounds one layer of a network: its weight and its inputs in, its integers out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.graph import Array
from compress.quantize.layer_weights import (
    ChooseScales,
    QuantizedWeight,
    WeightLayout,
    choose_block_scales,
    choose_row_scales,
    to_rows,
)
from compress.quantize.qparams import IntegerGrid
from compress.quantize.rounding.contract import Rounding, RoundingProblem
from compress.quantize.rounding.moments import Moments, MomentSums
from compress.quantize.rounding.window import Window

HELD_OUT_EVERY = 4
COLUMNS = 16384
MOST_INPUTS = 8192
"""Beyond it the second moments of a layer's inputs take gigabytes, and its weights are rounded to
the nearest integer."""


@dataclass(frozen=True, kw_only=True)
class LayerInputs:
    """A layer's inputs on the calibration pictures.

    Attributes:
        samples: how many pictures there are.
        read: returns a picture's input in the float network, and in the quantized prefix.
        output_shape: of the layer's output for one picture.
        is_centered: whether the layer's bias makes up for what rounding does to the mean.
    """

    samples: int
    read: Callable[[int], tuple[Array, Array]]
    output_shape: tuple[int, ...]
    is_centered: bool


def round_layer(
    node: onnx.NodeProto,
    weight: Array,
    layout: WeightLayout,
    grid: IntegerGrid,
    rounding: Rounding,
    inputs: LayerInputs | None,
    choose_scales: ChooseScales = choose_row_scales,
) -> tuple[QuantizedWeight, str]:
    """Returns a layer's integers and, in words, how they were found.

    Args:
        node: a Conv, ConvTranspose, Gemm or MatMul.
        weight: its constant second input.
        layout: its output channel axis and blocks.
        grid: the integers that are allowed.
        rounding: the method.
        inputs: read only if the method needs them; None if it does not.
        choose_scales: finds the scale of each row (or block of one).
    """
    rows = to_rows(weight, layout.axis)
    scales = choose_block_scales(rows, layout.blocks, grid, choose_scales)
    fit: Moments | None = None
    held_out: Moments | None = None
    if rounding.needs_inputs and inputs is not None and rows.shape[1] <= MOST_INPUTS:
        fit, held_out = observe_inputs(node, weight, layout.axis, inputs)
    rounded = rounding.round_weights(
        RoundingProblem(
            weights=rows,
            scales=scales,
            blocks=layout.blocks,
            grid=grid,
            fit=fit,
            held_out=held_out,
        )
    )
    return layout.to_weight(rounded.integers, rounded.scales, grid.bits), rounded.how


def observe_inputs(
    node: onnx.NodeProto, weight: Array, axis: int, inputs: LayerInputs
) -> tuple[Moments | None, Moments | None]:
    """Returns moments over three quarters of the pictures, and over the others (None if 1).

    At most COLUMNS output positions are looked at, drawn at random with a fixed seed, as many of
    each picture that has any. A transposed convolution with groups shares its scales between them,
    so it becomes one group whose inputs do not mix.
    """
    rng = np.random.default_rng(0)
    sums = [MomentSums(is_centered=inputs.is_centered) for _ in range(2)]
    is_tied = False
    for sample in range(inputs.samples):
        plain, quantized = inputs.read(sample)
        if plain.size == 0:
            continue
        window = Window.of(node, weight.shape, plain.shape, inputs.output_shape)
        positions = _draw(rng, window.count(plain.shape, inputs.output_shape), inputs.samples)
        columns = window.columns(plain, positions)
        rows = grouped_rows(weight, axis, window.groups)
        is_tied = axis == 1 and window.groups > 1
        sums[inputs.samples > 1 and is_held_out(sample)].add(
            columns, window.columns(quantized, positions), rows @ columns
        )
    found: Sequence[Moments | None] = [item.finish() for item in sums]
    fit, held_out = (item.block_diagonal() if item and is_tied else item for item in found)
    return fit, held_out


def is_held_out(sample: int) -> bool:
    """Returns whether a calibration picture judges what the others are fitted to."""
    return sample % HELD_OUT_EVERY == HELD_OUT_EVERY // 2 - 1


def grouped_rows(weight: Array, axis: int, groups: int) -> NDArray[np.float32]:
    """Returns [groups, out, in], a matrix per group of a convolution."""
    if axis == 1 and groups > 1:
        parts = [to_rows(part, 1) for part in np.split(weight, groups)]
        return np.stack(parts).astype(np.float32)
    rows = to_rows(weight, axis).astype(np.float32)
    return rows.reshape(groups, -1, rows.shape[1])


def _draw(rng: np.random.Generator, count: int, samples: int) -> NDArray[np.int64] | None:
    """Returns the positions to look at in one picture, in order; None for all."""
    each = max(1, COLUMNS // samples)
    return np.sort(rng.permutation(count)[:each]) if count > each else None
