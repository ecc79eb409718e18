"""Rules that every placement shares: which layers can compute in integers."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import onnx

from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.attention import AttentionRule, quantize_attention
from compress.quantize.placement.contract import Declined, QuantizedNode
from compress.quantize.placement.movement import moved_inputs

LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
FLOAT_ONLY = frozenset({"DeformConv", "GRU", "LSTM", "RNN"})
CUTTING = frozenset({"Relu", "Clip"})


def place_layers(
    graph: Graph,
    keep_float: frozenset[str],
    *,
    reasons: Mapping[str, str],
    attention: AttentionRule,
    quantizes_sums: bool = False,
    trunk_loses_on: str = "",
) -> tuple[list[QuantizedNode], list[Declined]]:
    """Looks at every layer, every residual Add, and the products of attention.

    Args:
        graph: the simplified float graph.
        keep_float: names of nodes that are declined without a look.
        reasons: why a runtime declines a node that could be quantized, by the node's name.
        attention: how the runtime wants it.
        quantizes_sums: whether an Add of two ReLUs reads integers on both sides.
        trunk_loses_on: the runtime, where a trunk of Adds without activations stays in float.
    """
    quantized: list[QuantizedNode] = []
    declined: list[Declined] = []
    layers: set[str] = set()
    for node in graph.nodes:
        answer = quantize_attention(graph, node, attention)
        if answer is None and node.op_type in LAYERS | FLOAT_ONLY:
            answer = quantize_layer(graph, node)
        elif node.op_type == "Add":
            answer = quantize_residual_add(graph, node, layers)
            if answer is None and quantizes_sums:
                answer = quantize_sum(graph, node, layers)
            if trunk_loses_on and isinstance(answer, QuantizedNode) and _is_trunk(graph, node):
                reason = (
                    f"its sum goes on without an activation: rounding it in block after block "
                    f"costs quality, and on {trunk_loses_on} saves little time"
                )
                answer = Declined(node=node.name, reason=reason)
        if answer is not None and node.name in keep_float:
            answer = Declined(node=node.name, reason="keep_float names it")
        if isinstance(answer, QuantizedNode) and node.name in reasons:
            answer = Declined(node=node.name, reason=reasons[node.name])
        if isinstance(answer, Declined):
            declined.append(answer)
        elif answer is not None:
            quantized.append(answer)
            layers |= {node.name} if answer.weight is not None else set()
    return quantized, declined


def sort_nodes(graph: Graph, quantized: Iterable[QuantizedNode]) -> list[QuantizedNode]:
    """Returns the nodes in topological order."""
    order = {node.name: position for position, node in enumerate(graph.nodes)}
    return sorted(quantized, key=lambda item: order[item.node])


def quantize_layer(graph: Graph, node: onnx.NodeProto) -> QuantizedNode | Declined:
    """Quantizes the input and the weight of a Conv, ConvTranspose, Gemm or MatMul alone."""
    data, weight_name = node.input[0], node.input[1]
    if node.op_type in FLOAT_ONLY:
        reason = f"no runtime computes {node.op_type} in integers between Q/DQ pairs"
        return Declined(node=node.name, reason=reason)
    if data in graph.weights:
        return Declined(node=node.name, reason=f"its input '{data}' is a constant")
    if weight_name not in graph.weights:
        return Declined(
            node=node.name, reason=f"its weight '{weight_name}' is computed, not a constant"
        )
    if _is_expectation(graph, data):
        return Declined(
            node=node.name, reason="it averages a Softmax, which decodes a distribution"
        )
    weight = graph.weights[weight_name]
    if weight.dtype != np.float32:
        return Declined(node=node.name, reason=f"its weight is {weight.dtype}, not float32")
    if node.op_type == "MatMul":
        if weight.ndim != 2:
            return Declined(node=node.name, reason=f"its weight has {weight.ndim} axes, not 2")
        rank = len(graph.shapes.get(data, (0, 0)))
        return QuantizedNode(
            node=node.name, activations=(0,), weight=1, weight_axis=1, output_axis=rank - 1
        )
    if node.op_type == "Gemm" and (
        attribute(node, "transA", 0) or not attribute(node, "transB", 0)
    ):
        return Declined(node=node.name, reason="its matrices are not [N, in] x [out, in]")
    if len(node.input) > 2 and node.input[2] and node.input[2] not in graph.weights:
        return Declined(node=node.name, reason=f"its bias '{node.input[2]}' is computed")
    axis = 1 if node.op_type == "ConvTranspose" else 0
    return QuantizedNode(node=node.name, activations=(0,), weight=1, weight_axis=axis)


def _is_expectation(graph: Graph, tensor: str) -> bool:
    """Whether a tensor holds probabilities: what reads it with fixed weights is a decoder (DFL)."""
    maker = graph.producer(tensor)
    while maker is not None and moved_inputs(graph, maker):
        maker = graph.producer(maker.input[0])
    return maker is not None and maker.op_type == "Softmax"


def quantize_residual_add(
    graph: Graph, node: onnx.NodeProto, layers: set[str]
) -> QuantizedNode | Declined | None:
    """Quantizes one branch of an Add whose other branch comes from a quantized layer.

    The layer that is computed last adds the other branch in its own kernel (TensorRT's and
    oneDNN's fused sum), so its output stays as it is, and the other branch arrives as integers.
    """
    if any(name in graph.weights for name in node.input):
        return None
    shapes = [graph.shapes.get(name) for name in node.input]
    fused = [
        position for position in (0, 1) if _is_fusable(graph, node, node.input[position], layers)
    ]
    if not fused:
        return None
    if shapes[0] is None or shapes[0] != shapes[1]:
        return Declined(node=node.name, reason=f"it broadcasts {shapes[0]} and {shapes[1]}")
    order = {other.name: position for position, other in enumerate(graph.nodes)}
    last = max(fused, key=lambda position: order[_source(graph, node.input[position])])
    return QuantizedNode(node=node.name, activations=(1 - last,))


def find_lone_sums(graph: Graph, quantized: Collection[QuantizedNode]) -> dict[str, Declined]:
    """Returns the Adds that read integers of a tensor of which all others read the floats."""
    sums: dict[str, list[str]] = {}
    others: set[str] = set()
    for item in quantized:
        node = graph.node(item.node)
        names = [node.input[position] for position in item.activations]
        if node.op_type == "Add" and len(names) == 1:
            sums.setdefault(names[0], []).append(node.name)
        else:
            others.update(names)
    return {
        name: Declined(
            node=name, reason=f"others read '{branch}' in float: rounding it for sums saves no time"
        )
        for branch, names in sums.items()
        if branch not in others and len(graph.consumers(branch)) > len(names)
        for name in names
    }


def _is_trunk(graph: Graph, add: onnx.NodeProto) -> bool:
    """Whether an Add gives x + f(x), which no activation cuts (ConvNeXt, MobileNetV2)."""
    is_cut = any(reader.op_type in CUTTING for reader in graph.consumers(add.output[0]))
    return not is_cut and any(len(graph.consumers(name)) > 1 for name in add.input)


def quantize_sum(graph: Graph, node: onnx.NodeProto, layers: set[str]) -> QuantizedNode | None:
    """Quantizes both inputs of an Add of two ReLUs behind layers, as feature pyramids have.

    The layers then write integers, which runtimes round in the same loop as a ReLU, and the Add
    moves a quarter of the bytes. Behind a SiLU that was slower.
    """
    shapes = [graph.shapes.get(name) for name in node.input]
    makers = [graph.producer(name) for name in node.input]
    is_wanted = any(
        reader.op_type in LAYERS or moved_inputs(graph, reader)
        for reader in graph.consumers(node.output[0])
    )
    if None in shapes or shapes[0] != shapes[1] or not is_wanted:
        return None
    if not all(
        maker is not None and maker.op_type in CUTTING and _source(graph, maker.input[0]) in layers
        for maker in makers
    ):
        return None
    return QuantizedNode(node=node.name, activations=(0, 1))


def _source(graph: Graph, tensor: str) -> str:
    producer = graph.producer(tensor)
    return producer.name if producer is not None else ""


def _is_fusable(graph: Graph, add: onnx.NodeProto, tensor: str, layers: set[str]) -> bool:
    return _source(graph, tensor) in layers and graph.sole_consumer(tensor) is add
