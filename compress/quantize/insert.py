"""Writes the decisions of the streaming pass into the graph as Q/DQ pairs."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from artifacts.openvino_guard import make_guard
from compress.quantize.graph import Array, Graph
from compress.quantize.placement import QuantizedNode
from compress.quantize.qparams import QParams
from compress.quantize.streaming import Decisions, QuantizedWeight, qdq_nodes

FUSED_AFTER_CONCAT = frozenset({"Relu", "Clip", "Reshape", "Transpose", "Squeeze", "Unsqueeze"})


def insert_qdq(graph: Graph, quantized: Sequence[QuantizedNode], decisions: Decisions) -> None:
    """Inserts one Q/DQ pair per activation, stores weights as int8, and corrected biases.

    All quantized readers of a tensor share its pair; readers that stay in float read the tensor.
    A MaxPool whose output is quantized gets the same pair on its input: rounding keeps the order of
    values, so the result stays as it is, and the layer before and the pool both work on integers.
    """
    graph.weights |= decisions.overrides
    choices = {item.node: item for item in quantized}
    nodes: list[onnx.NodeProto] = []
    paired: set[str] = set()
    for node in graph.nodes:
        choice = choices.get(node.name)
        if node.op_type == "MaxPool" and _is_integer_pool(graph, node, decisions, set(choices)):
            pair, constants = _pool_nodes(node, decisions.activations[node.output[0]])
            nodes += pair
            graph.weights |= constants
            node.input[0] = pair[1].output[0]
        if choice is not None:
            for position in choice.activations:
                tensor = node.input[position]
                if tensor not in paired:
                    pair, constants = _activation_nodes(
                        graph, tensor, decisions.activations[tensor]
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


def _activation_nodes(
    graph: Graph, tensor: str, qparams: QParams
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Returns a tensor's Q/DQ pair, behind a guard where OpenVINO would misread it."""
    pair, constants = qdq_nodes(tensor, f"{tensor}_scale", f"{tensor}_zero_point", qparams)
    if not (qparams.grid.is_signed and _is_concatenated(graph, tensor)):
        return pair, constants
    guard = make_guard(tensor)
    pair[0].input[0] = guard.output[0]
    return [guard, *pair], constants


def _is_concatenated(graph: Graph, tensor: str) -> bool:
    """Returns whether a tensor is the result of a Concat, through nodes that OpenVINO fuses."""
    maker = graph.producer(tensor)
    while maker is not None and maker.op_type in FUSED_AFTER_CONCAT:
        maker = graph.producer(maker.input[0])
    return maker is not None and maker.op_type == "Concat"


def _is_integer_pool(
    graph: Graph, pool: onnx.NodeProto, decisions: Decisions, integer: set[str]
) -> bool:
    result, source = pool.output[0], pool.input[0]
    return (
        result in decisions.activations
        and source not in decisions.activations
        and source not in graph.inputs
        and graph.sole_consumer(source) is not None
        and result not in graph.outputs
        and all(reader.name in integer for reader in graph.consumers(result))
        and len(pool.output) == 1
    )


def _pool_nodes(
    pool: onnx.NodeProto, qparams: QParams
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    tensor, result = pool.input[0], pool.output[0]
    return qdq_nodes(tensor, f"{result}_scale", f"{result}_zero_point", qparams)


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
