"""Writes the decisions of the streaming pass into the graph as Q/DQ pairs."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Array, Graph
from compress.quantize.placement import QuantizedNode
from compress.quantize.streaming import Decisions, QuantizedWeight, qdq_nodes


def insert_qdq(graph: Graph, quantized: Sequence[QuantizedNode], decisions: Decisions) -> None:
    """Inserts one Q/DQ pair per activation, stores weights as int8, and corrected biases.

    All quantized readers of a tensor share its pair; readers that stay in float read the tensor.
    """
    graph.weights |= decisions.overrides
    choices = {item.node: item for item in quantized}
    nodes: list[onnx.NodeProto] = []
    paired: set[str] = set()
    for node in graph.nodes:
        choice = choices.get(node.name)
        if choice is not None:
            for position in choice.activations:
                tensor = node.input[position]
                if tensor not in paired:
                    pair, constants = qdq_nodes(
                        tensor,
                        f"{tensor}_scale",
                        f"{tensor}_zero_point",
                        decisions.activations[tensor],
                    )
                    nodes += pair
                    graph.weights |= constants
                    paired.add(tensor)
                node.input[position] = f"{tensor}_dequantized"
            if choice.weight is not None:
                dequantize, constants = _weight_nodes(node, decisions.weights[node.name])
                nodes.append(dequantize)
                graph.weights |= constants
                node.input[choice.weight] = dequantize.output[0]
            _set_bias(node, decisions.biases.get(node.name))
        nodes.append(node)
    graph.nodes = nodes
    graph.index()
    graph.drop_unused_weights()


def _weight_nodes(
    node: onnx.NodeProto, weight: QuantizedWeight
) -> tuple[onnx.NodeProto, dict[str, Array]]:
    stem = f"{node.name}_weight"
    names = [f"{stem}_quantized", f"{stem}_scale", f"{stem}_zero_point"]
    dequantize = helper.make_node(
        "DequantizeLinear",
        names,
        [f"{stem}_dequantized"],
        f"{stem}_DequantizeLinear",
        axis=weight.axis,
    )
    zero_points = np.zeros(weight.scales.shape, weight.integers.dtype)
    constants = (weight.integers, weight.scales, zero_points)
    return dequantize, dict(zip(names, constants, strict=True))


def _set_bias(node: onnx.NodeProto, name: str | None) -> None:
    if name is None:
        return
    del node.input[2:]
    node.input.append(name)
