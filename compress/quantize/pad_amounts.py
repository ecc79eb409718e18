"""How much a Pad puts around its input."""

import numpy as np
import onnx

from compress.quantize.graph import Graph


def read_pad_amounts(graph: Graph, pad: onnx.NodeProto) -> dict[int, tuple[int, int]] | None:
    """Returns what is put before and behind each padded axis; None where that is computed.

    Args:
        graph: the Pad's.
        pad: of opset 11 or newer; negative amounts cut values off.
    """
    shape = graph.shapes.get(pad.input[0])
    amounts = graph.weights.get(pad.input[1])
    has_axes = len(pad.input) > 3 and bool(pad.input[3])
    axes = graph.weights.get(pad.input[3]) if has_axes else None
    if shape is None or amounts is None or (has_axes and axes is None):
        return None
    padded = np.arange(len(shape)) if axes is None else axes
    if amounts.size != 2 * padded.size:
        return None
    before, behind = amounts.reshape(2, -1).tolist()
    return {
        axis % len(shape): (first, last)
        for axis, first, last in zip(padded.tolist(), before, behind, strict=True)
        if first or last
    }
