"""Gives back to a layer's output what quantization took from its mean."""

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.decisions import Decisions
from compress.quantize.graph import Graph


def shift_bias(
    graph: Graph, decisions: Decisions, node: onnx.NodeProto, shift: NDArray[np.float64]
) -> bool:
    """Adds `shift` to the layer's bias, or to the constant of the Add after a MatMul.

    Returns:
        whether the layer's own output moves; with the Add it is the Add's.
    """
    if node.op_type == "MatMul":
        constant = find_next_offset(graph, node, len(shift))
        if constant is not None:
            moved = graph.weights[constant] + shift
            decisions.overrides[constant] = moved.astype(np.float32)
        return False
    has_bias = len(node.input) > 2 and bool(node.input[2])
    bias = graph.weights[node.input[2]] if has_bias else np.zeros(1)
    name = graph.unused_name(f"{node.name}_bias_corrected")
    decisions.overrides[name] = (bias + shift).astype(np.float32)
    decisions.biases[node.name] = name
    return True


def find_next_offset(graph: Graph, node: onnx.NodeProto, channels: int) -> str | None:
    """Returns the constant of the Add after a MatMul that may change, one per channel."""
    add = graph.sole_consumer(node.output[0])
    if add is None or add.op_type != "Add":
        return None
    constant = add.input[1] if add.input[0] == node.output[0] else add.input[0]
    value = graph.weights.get(constant)
    is_fitting = value is not None and value.shape == (channels,)
    return constant if is_fitting and len(graph.consumers(constant)) == 1 else None
