"""A layer's inputs as columns, so that the layer is a matrix product: outputs = rows @ columns.

For a convolution that is im2col at a sample of the output positions; a transposed convolution is
the convolution of its zero-stuffed input with its flipped kernel.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.graph import Array, attribute

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Window:
    """The geometry of a (transposed) convolution, or of a product (no axes).

    Attributes:
        groups: channel groups.
        kernel, strides, dilations: one per spatial axis.
        before, after: zeros around each spatial axis; negative amounts cut.
        stuffing: distance between neighbours, per axis (1 but for a transposed convolution).
        is_flipped: the kernel is read backwards.
    """

    groups: int = 1
    kernel: Sizes = ()
    strides: Sizes = ()
    dilations: Sizes = ()
    before: Sizes = ()
    after: Sizes = ()
    stuffing: Sizes = ()
    is_flipped: bool = False

    @classmethod
    def of(cls, node: onnx.NodeProto, weight: Sizes, inputs: Sizes, outputs: Sizes) -> "Window":
        """Reads a node's geometry; what auto_pad leaves open follows from the shapes.

        Args:
            node: a Conv, ConvTranspose, Gemm or MatMul.
            weight: the shape of its weight.
            inputs: the shape of its first input.
            outputs: the shape of its output.
        """
        if node.op_type in ("Gemm", "MatMul"):
            return cls()
        axes = len(weight) - 2
        kernel = weight[2:]
        strides = tuple(attribute(node, "strides", [1] * axes))
        dilations = tuple(attribute(node, "dilations", [1] * axes))
        groups = attribute(node, "group", 1)
        reach = [(size - 1) * step for size, step in zip(kernel, dilations, strict=True)]
        is_transposed = node.op_type == "ConvTranspose"
        small, large = (inputs, outputs) if is_transposed else (outputs, inputs)
        covered = [
            (size - 1) * stride + span + 1
            for size, stride, span in zip(small[2:], strides, reach, strict=True)
        ]
        missing = [size - has for size, has in zip(covered, large[2:], strict=True)]
        begin = _begin_pads(node, missing)
        if not is_transposed:
            return cls(
                groups=groups,
                kernel=kernel,
                strides=strides,
                dilations=dilations,
                before=begin,
                after=tuple(all_ - first for all_, first in zip(missing, begin, strict=True)),
                stuffing=(1,) * axes,
            )
        return cls(
            groups=groups,
            kernel=kernel,
            strides=(1,) * axes,
            dilations=dilations,
            before=tuple(span - first for span, first in zip(reach, begin, strict=True)),
            after=tuple(
                span - (all_ - first)
                for span, all_, first in zip(reach, missing, begin, strict=True)
            ),
            stuffing=strides,
            is_flipped=True,
        )

    def count(self, inputs: Sizes, outputs: Sizes) -> int:
        """Returns how many output positions there are, over the batch and all spatial axes.

        Args:
            inputs: the shape of the layer's first input.
            outputs: of what it computes, maybe of another sample, with more rows or fewer.
        """
        if not self.kernel:
            return int(np.prod(inputs[:-1]))
        return int(inputs[0] * np.prod(outputs[2:]))

    def covered(self, inputs: Sizes) -> float:
        """Returns which share of the weights meets a value of the input, not a zero around it.

        Args:
            inputs: the shape of the layer's first input.
        """
        share = 1.0
        for axis, size in enumerate(inputs[2:] if self.kernel else ()):
            line = Window(
                kernel=self.kernel[axis : axis + 1],
                strides=self.strides[axis : axis + 1],
                dilations=self.dilations[axis : axis + 1],
                before=self.before[axis : axis + 1],
                after=self.after[axis : axis + 1],
                stuffing=self.stuffing[axis : axis + 1],
            )
            share *= float(line.columns(np.ones((1, 1, size), np.float32)).mean())
        return share

    def columns(
        self, values: Array, positions: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Returns [groups, in, n]: the inputs that meet the weights at n output positions.

        Args:
            values: the layer's input, [N, C, ...] (a product's: [..., in]).
            positions: flat indices of output positions; None for all.
        """
        if not self.kernel:
            flat = values.reshape(-1, values.shape[-1])
            rows = flat if positions is None else flat[positions]
            return np.ascontiguousarray(rows.T[None], np.float32)
        windows = self._windows(values)
        shape = (windows.shape[0], *windows.shape[2 : 2 + len(self.kernel)])
        if positions is None:
            positions = np.arange(np.prod(shape))
        index = np.unravel_index(positions, shape)
        chosen: list[Any] = [index[0], slice(None), *index[1:]]
        rows = windows[tuple(chosen)].reshape(len(positions), self.groups, -1)
        return np.ascontiguousarray(rows.transpose(1, 2, 0), np.float32)

    def _windows(self, values: Array) -> Array:
        """Returns a view [N, C, *positions, *kernel]."""
        padded = _pad(_stuff(values, self.stuffing), self.before, self.after)
        spans = tuple(
            (size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True)
        )
        axes = tuple(range(2, values.ndim))
        windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axes)
        direction = -1 if self.is_flipped else 1
        index: list[slice] = [slice(None), slice(None)]
        index += [slice(None, None, step) for step in self.strides]
        index += [slice(None, None, direction * step) for step in self.dilations]
        return np.asarray(windows[tuple(index)])


def _begin_pads(node: onnx.NodeProto, missing: list[int]) -> Sizes:
    auto_pad = attribute(node, "auto_pad", b"NOTSET")
    if auto_pad == b"SAME_UPPER":
        return tuple(max(pad, 0) // 2 for pad in missing)
    if auto_pad == b"SAME_LOWER":
        return tuple(max(pad, 0) - max(pad, 0) // 2 for pad in missing)
    return tuple(attribute(node, "pads", [0] * 2 * len(missing))[: len(missing)])


def _stuff(values: Array, stuffing: Sizes) -> Array:
    if all(step == 1 for step in stuffing):
        return values
    shape = [(size - 1) * step + 1 for size, step in zip(values.shape[2:], stuffing, strict=True)]
    stuffed = np.zeros((*values.shape[:2], *shape), values.dtype)
    index: list[Any] = [..., *(slice(None, None, step) for step in stuffing)]
    stuffed[tuple(index)] = values
    return stuffed


def _pad(values: Array, before: Sizes, after: Sizes) -> Array:
    """Adds zeros around the spatial axes; negative amounts cut."""
    pads = [(0, 0), (0, 0)]
    for axis, (first, last) in enumerate(zip(before, after, strict=True), start=2):
        kept = slice(max(-first, 0), values.shape[axis] - max(-last, 0))
        values = values[(slice(None),) * axis + (kept,)]
        pads.append((max(first, 0), max(last, 0)))
    return np.pad(values, pads)
