"""Cuts what a Conv's kernel has outside the picture at every place.

    Conv 3x3, dilations 12, pads 12, of 8x12 values        becomes        Conv 1x1

Atrous pyramids (DeepLab) reach further than a small picture: of a 3x3 kernel only the middle, or
its row, ever sees a value. Kernels in float skip what they multiply with zeros. Those in integers
cannot where zero has another integer than 0, and may take longer than in float. And weights that
nothing sees no longer stretch the range of those that count.
"""

from collections.abc import Sequence

import numpy as np
import onnx

from artifacts.node_attributes import set_attributes
from compress.quantize.graph import Array, Graph
from compress.quantize.rounding.window import Window


def cut_unseen_taps(graph: Graph) -> list[str]:
    """Cuts the ends of kernels that see no value at any place; returns a line for each Conv.

    A Conv stays whole where what is left of it would need negative pads.
    """
    done = []
    for node in graph.nodes:
        weight = graph.weights.get(node.input[1]) if node.op_type == "Conv" else None
        if weight is None:
            continue
        inputs, outputs = (graph.shapes.get(name) for name in (node.input[0], node.output[0]))
        if not inputs or not outputs:
            continue
        window = Window.of(node, weight.shape, inputs, outputs)
        kept = [_find_seen(window, axis, size) for axis, size in enumerate(inputs[2:])]
        pads = _find_pads(window, kept)
        size = tuple(len(places) for places in kept)
        if size == window.kernel or not all(size) or pads is None:
            continue
        _cut(graph, node, weight, kept, pads)
        whole, part = ("x".join(map(str, sizes)) for sizes in (window.kernel, size))
        done.append(f"cut the kernel of {node.name} from {whole} to the {part} that see values")
    graph.index()
    return done


def _find_seen(window: Window, axis: int, size: int) -> range:
    """Returns the taps along an axis, from the first to the last that sees a value."""
    stride, dilation = window.strides[axis], window.dilations[axis]
    before, after = window.before[axis], window.after[axis]
    last = size + after - 1 - (window.kernel[axis] - 1) * dilation
    starts = np.arange(-before, last + 1, stride)
    seen = [
        tap
        for tap in range(window.kernel[axis])
        if np.any((starts + tap * dilation >= 0) & (starts + tap * dilation < size))
    ]
    return range(seen[0], seen[-1] + 1) if seen else range(0)


def _find_pads(window: Window, kept: Sequence[range]) -> list[int] | None:
    """Returns the pads with these taps as ONNX has them, those before first; None for negative."""
    before, after = [], []
    for axis, places in enumerate(kept):
        step, stride = window.dilations[axis], window.strides[axis]
        before.append(window.before[axis] - places.start * step)
        needed = window.after[axis] - (window.kernel[axis] - places.stop) * step
        if before[-1] < 0 or needed <= -stride:
            return None
        after.append(max(needed, 0))
    return before + after


def _cut(
    graph: Graph,
    node: onnx.NodeProto,
    weight: Array,
    kept: Sequence[range],
    pads: Sequence[int],
) -> None:
    places = (slice(None), slice(None), *(slice(taps.start, taps.stop) for taps in kept))
    part = weight[places]
    node.input[1] = graph.unused_name(f"{node.name}_weight")
    graph.weights[node.input[1]] = np.ascontiguousarray(part)
    set_attributes(node, kernel_shape=part.shape[2:], pads=pads, auto_pad="NOTSET")
