"""Writes the decisions of the streaming pass into the graph as Q/DQ pairs."""

from collections.abc import Collection, Sequence, Set

import numpy as np
import onnx
from onnx import TensorProto, helper

from artifacts.graph_reading import NewNames
from artifacts.openvino_guard import UNQUANTIZED_TYPES, make_guard
from compress.quantize.decisions import Decisions
from compress.quantize.float_guards import guard_float_layers
from compress.quantize.graph import Array, Graph
from compress.quantize.placement import QuantizedNode
from compress.quantize.placement.movement import MOVING
from compress.quantize.placement.reductions import holds_extrema
from compress.quantize.product_biases import widen_product_biases
from compress.quantize.qdq_nodes import qdq_nodes
from compress.quantize.qparams import QParams

AFFINE = frozenset({"BatchNormalization", "Mul", "Add", "Sub", "Div"})
PASSED_BY_QUANTIZERS = MOVING - {"Concat"} | {"Relu", "Clip", "AveragePool", "Identity"} | AFFINE


def insert_qdq(
    graph: Graph,
    quantized: Sequence[QuantizedNode],
    decisions: Decisions,
    passed: Collection[str] = (),
) -> None:
    """Inserts one Q/DQ pair per activation, stores weights as integers, and what was corrected.

    All quantized readers of a tensor share its pair; readers that stay in float read the tensor.

    Args:
        graph: is changed in place.
        quantized: its nodes in integers.
        decisions: what was decided for them.
        passed: tensors without a pair of their own, unless they are signed
            (`Placement.find_passed`): OpenVINO (seen with 2026.4) may read those as unsigned where
            a Concat follows, however far behind.
    """
    graph.weights |= decisions.overrides
    choices = {item.node: item for item in quantized}
    nodes: list[onnx.NodeProto] = []
    names = NewNames(graph.taken_names())
    paired: dict[str, str] = {}
    stored: dict[str, list[str]] = {}
    extrema: set[str] = set()
    for node in graph.nodes:
        choice = choices.get(node.name)
        data = node.input[0] if node.input else ""
        if choice is not None:
            own = [
                at
                for at in choice.activations
                if node.input[at] not in passed
                or decisions.activations[node.input[at]].grid.is_signed
            ]
            nodes += _pair_activations(graph, node, own, decisions, paired, extrema, names)
            if choice.weight is not None:
                nodes.append(_store_weight(graph, node, choice.weight, decisions, stored, names))
        elif node.name in decisions.float_weights:
            node.input[1] = decisions.float_weights[node.name]
        _set_bias(node, decisions.biases.get(node.name))
        if choice is not None and _has_integer_bias(node, choice, decisions):
            nodes.append(_store_bias(graph, node, data, decisions, names))
        if holds_extrema(graph, node, extrema):
            extrema.update(node.output)
        nodes.append(node)
    graph.nodes = nodes
    graph.index()
    widen_product_biases(graph)
    guard_float_layers(graph)
    graph.drop_unused_weights()


def _pair_activations(
    graph: Graph,
    node: onnx.NodeProto,
    positions: Sequence[int],
    decisions: Decisions,
    paired: dict[str, str],
    extrema: set[str],
    names: NewNames,
) -> list[onnx.NodeProto]:
    """Lets a node read Q/DQ pairs at some positions; returns those of tensors that had none yet.

    `paired` has the dequantized tensor of each that has one.
    """
    nodes: list[onnx.NodeProto] = []
    for position in positions:
        tensor = node.input[position]
        if tensor not in paired:
            guard = _find_guard(graph, tensor, decisions.activations[tensor], extrema)
            qparams = decisions.activations[tensor]
            pair, constants = _activation_nodes(tensor, qparams, guard, names)
            nodes += pair
            graph.weights |= constants
            paired[tensor] = pair[-1].output[0]
        node.input[position] = paired[tensor]
    return nodes


def _activation_nodes(
    tensor: str, qparams: QParams, guard: onnx.NodeProto | None, names: NewNames
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Returns a tensor's Q/DQ pair, behind its guard."""
    pair, constants = qdq_nodes(tensor, qparams, names.take)
    if guard is None:
        return pair, constants
    pair[0].input[0] = guard.output[0]
    return [guard, *pair], constants


def _find_guard(
    graph: Graph, tensor: str, qparams: QParams, extrema: Set[str]
) -> onnx.NodeProto | None:
    """Returns what keeps OpenVINO from seeing where a tensor comes from (`openvino_guard`)."""
    if tensor in extrema:
        return make_guard(tensor, is_extremum=True)
    maker = graph.maker_beyond(tensor, PASSED_BY_QUANTIZERS)
    if maker is None:
        return None
    if maker.op_type == "Concat":
        is_multiplied = any(reader.op_type == "MatMul" for reader in graph.consumers(tensor))
        is_misread = qparams.grid.is_signed or (qparams.zero_point != 0 and is_multiplied)
    else:
        is_misread = _is_narrowed_input(graph, maker)
    return make_guard(tensor) if is_misread else None


def _is_narrowed_input(graph: Graph, node: onnx.NodeProto) -> bool:
    """Returns whether a node makes float32 of an input that OpenVINO cannot quantize itself."""
    return node.op_type == "Cast" and any(
        item.name == node.input[0] and item.type.tensor_type.elem_type in UNQUANTIZED_TYPES
        for item in graph.values
    )


def _store_weight(
    graph: Graph,
    node: onnx.NodeProto,
    position: int,
    decisions: Decisions,
    stored: dict[str, list[str]],
    names: NewNames,
) -> onnx.NodeProto:
    """Stores a layer's weight as integers; returns the node that it now reads.

    Args:
        graph: its weights get the integers, unless they have them.
        node: the layer.
        position: of the weight among its inputs.
        decisions: hold the integers.
        stored: names of the integers that are stored already, by their digest.
        names: gives names for what is new.
    """
    weight = decisions.weights[node.name]
    stem = f"{node.name}_weight"
    is_new = weight.digest not in stored
    if is_new:
        ends = ("quantized", "scale", "zero_point")
        stored[weight.digest] = [names.take(f"{stem}_{end}") for end in ends]
    operands = stored[weight.digest]
    dequantize = helper.make_node(
        "DequantizeLinear",
        operands,
        [names.take(f"{stem}_dequantized")],
        names.take(f"{stem}_DequantizeLinear"),
        axis=weight.axis,
    )
    if weight.block is not None:
        dequantize.attribute.append(helper.make_attribute("block_size", weight.block))
    if is_new:
        dtype = helper.tensor_dtype_to_np_dtype(TensorProto.INT4) if weight.bits == 4 else np.int8
        zero_points = np.zeros(weight.scales.shape, dtype)
        constants = (weight.integers.astype(dtype), weight.scales, zero_points)
        graph.weights |= dict(zip(operands, constants, strict=True))
    node.input[position] = dequantize.output[0]
    return dequantize


def _set_bias(node: onnx.NodeProto, name: str | None) -> None:
    if name is None:
        return
    del node.input[2:]
    node.input.append(name)


def _has_integer_bias(node: onnx.NodeProto, choice: QuantizedNode, decisions: Decisions) -> bool:
    if not choice.integer_bias or not choice.activations or len(node.input) < 3:
        return False
    weight = decisions.weights[node.name]
    return bool(node.input[2]) and weight.block is None and weight.bits != 4


def _store_bias(
    graph: Graph, node: onnx.NodeProto, data: str, decisions: Decisions, names: NewNames
) -> onnx.NodeProto:
    """Stores a bias as int32, in the units of the layer's integer products.

    The groups of a ConvTranspose share the scales of its weight.
    """
    stem = f"{node.name}_bias"
    operands = [names.take(f"{stem}_{end}") for end in ("quantized", "scale")]
    scale = np.float32(decisions.activations[data].scale)
    scales = (decisions.weights[node.name].scales * scale).astype(np.float32)
    limits = np.iinfo(np.int32)
    bias = graph.weights[node.input[2]].astype(np.float64)
    if scales.size > 1:
        scales = np.tile(scales, bias.size // scales.size)
    bias = bias / scales
    integers = np.clip(np.round(bias), limits.min, limits.max).astype(np.int32)
    dequantize = helper.make_node(
        "DequantizeLinear",
        operands,
        [names.take(f"{stem}_dequantized")],
        names.take(f"{stem}_DequantizeLinear"),
        axis=0,
    )
    graph.weights |= dict(zip(operands, (integers, scales), strict=True))
    node.input[2] = dequantize.output[0]
    return dequantize
