"""Writes the decisions of the streaming pass into the graph as Q/DQ pairs."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from artifacts.openvino_guard import make_guard
from compress.quantize.graph import Array, Graph
from compress.quantize.layer_weights import QuantizedWeight
from compress.quantize.placement import QuantizedNode
from compress.quantize.placement.movement import MOVING
from compress.quantize.qparams import QParams
from compress.quantize.streaming import Decisions, qdq_nodes

AFFINE = frozenset({"BatchNormalization", "Mul", "Add", "Sub", "Div"})
PASSED_BY_QUANTIZERS = MOVING - {"Concat"} | {"Relu", "Clip", "AveragePool", "Identity"} | AFFINE


def insert_qdq(graph: Graph, quantized: Sequence[QuantizedNode], decisions: Decisions) -> None:
    """Inserts one Q/DQ pair per activation, stores weights as integers, and corrected biases.

    All quantized readers of a tensor share its pair; readers that stay in float read the tensor.
    """
    graph.weights |= decisions.overrides
    choices = {item.node: item for item in quantized}
    nodes: list[onnx.NodeProto] = []
    paired: set[str] = set()
    for node in graph.nodes:
        choice = choices.get(node.name)
        data = node.input[0] if node.input else ""
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
            if _has_integer_bias(node, choice, decisions):
                scale = decisions.activations[data].scale
                dequantize, constants = _bias_nodes(
                    node, graph.weights[node.input[2]], decisions.weights[node.name], scale
                )
                nodes.append(dequantize)
                graph.weights |= constants
                node.input[2] = dequantize.output[0]
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
    """Returns whether a tensor comes from a Concat, through nodes that OpenVINO moves Q past."""
    maker = graph.producer(tensor)
    while maker is not None and maker.op_type in PASSED_BY_QUANTIZERS:
        computed = [name for name in maker.input if name and name not in graph.weights]
        if len(computed) != 1:
            return False
        maker = graph.producer(computed[0])
    return maker is not None and maker.op_type == "Concat"


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
    if weight.block is not None:
        dequantize.attribute.append(helper.make_attribute("block_size", weight.block))
    dtype = np.int8 if weight.bits == 8 else helper.tensor_dtype_to_np_dtype(TensorProto.INT4)
    zero_points = np.zeros(weight.scales.shape, dtype)
    constants = (weight.integers.astype(dtype), weight.scales, zero_points)
    return dequantize, dict(zip(names, constants, strict=True))


def _set_bias(node: onnx.NodeProto, name: str | None) -> None:
    if name is None:
        return
    del node.input[2:]
    node.input.append(name)


def _has_integer_bias(node: onnx.NodeProto, choice: QuantizedNode, decisions: Decisions) -> bool:
    if not choice.integer_bias or not choice.activations or len(node.input) < 3:
        return False
    weight = decisions.weights[node.name]
    return bool(node.input[2]) and weight.block is None and weight.bits == 8


def _bias_nodes(
    node: onnx.NodeProto, bias: Array, weight: QuantizedWeight, scale: float
) -> tuple[onnx.NodeProto, dict[str, Array]]:
    """Returns a bias as int32, in the units of the layer's integer products."""
    stem = f"{node.name}_bias"
    names = [f"{stem}_quantized", f"{stem}_scale"]
    scales = (weight.scales * np.float32(scale)).astype(np.float32)
    limits = np.iinfo(np.int32)
    integers = np.clip(np.round(bias / scales.astype(np.float64)), limits.min, limits.max)
    dequantize = helper.make_node(
        "DequantizeLinear", names, [f"{stem}_dequantized"], f"{stem}_DequantizeLinear", axis=0
    )
    return dequantize, dict(zip(names, (integers.astype(np.int32), scales), strict=True))
