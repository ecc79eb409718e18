"""Attention: the two products without constants, queries x keys and probabilities x values.

    MatMul(Q, K) - Mul / Div / Add - Softmax - MatMul(P, V)

Runtimes multiply in integers only where both inputs of a MatMul are quantized, so both get a Q/DQ
pair; the Softmax between stays in float. TensorRT computes the whole in one kernel only where both
products are alike: queries that are constants (a decoder's first layer, whose learned queries have
seen no picture yet) leave both in float. So do many keys: one scale serves all queries, and where
one of them looks at a single key, the probabilities of another that looks at all alike are rounded
to 0, the whole row of them. OpenVINO takes one product in integers and the other in float.
"""

from dataclasses import dataclass

import onnx

from artifacts.openvino_attention import COMMUTING, put_first
from compress.quantize.graph import Graph, attribute
from compress.quantize.idle_masks import guarded_by
from compress.quantize.placement.contract import Declined, QuantizedNode
from compress.quantize.placement.movement import moved_inputs

SCALING = COMMUTING | {"Div", "Sub", "Where"}
MATRIX_RANK = 2
BOTH = 2
RIGHT_STEPS = 127
"""Of probabilities as the right operand, from 0 to 1: it is int8 everywhere."""
KEYS_PER_STEP = 2
"""Alike, the probabilities of more keys are below half a step."""


@dataclass(frozen=True, kw_only=True)
class AttentionRule:
    """How a runtime wants attention.

    Attributes:
        float_reason: why both products stay in float; empty where they need not.
        are_alike: whether both products are in integers, or none.
        left_steps: of probabilities as the left operand, from 0 to 1.
    """

    float_reason: str = ""
    are_alike: bool = True
    left_steps: int = 127


def quantize_attention(
    graph: Graph, node: onnx.NodeProto, rule: AttentionRule
) -> QuantizedNode | Declined | None:
    """Quantizes both inputs of a MatMul before or behind a Softmax; None for any other node.

    Args:
        graph: the simplified float graph.
        node: any node.
        rule: the runtime's.
    """
    if node.op_type != "MatMul" or any(name in graph.weights for name in node.input):
        return None
    behind = _find_softmax_behind(graph, node)
    before = next(filter(None, (_find_softmax(graph, name) for name in node.input)), None)
    if behind is None and before is None:
        return None
    if rule.float_reason:
        return Declined(node=node.name, reason=rule.float_reason)
    partner = _find_scores(graph, before) if before is not None and rule.are_alike else None
    if partner is not None and _has_constant_operand(graph, partner):
        reason = f"'{partner.name}' has a constant operand and stays in float: both or none of them"
        return Declined(node=node.name, reason=reason)
    keys = _count_keys(graph, behind if rule.are_alike and behind is not None else before)
    steps = RIGHT_STEPS if _find_softmax(graph, node.input[1]) is not None else rule.left_steps
    if keys > KEYS_PER_STEP * steps:
        reason = f"INT8 has no probabilities for a query that looks at all its {keys} keys alike"
        return Declined(node=node.name, reason=reason)
    return QuantizedNode(node=node.name, activations=(0, 1))


def put_masks_first(graph: Graph) -> list[str]:
    """Lets masks of scores be the first operands, in place, as OpenVINO reads them right.

    Returns:
        the names of the changed nodes.
    """
    changed = []
    for product in graph.nodes:
        if product.op_type != "MatMul" or _find_softmax_behind(graph, product) is None:
            continue
        scores, node = product.output[0], graph.sole_consumer(product.output[0])
        while node is not None and node.op_type != "Softmax":
            is_second = list(node.input[:1]) == [scores] and len(node.input) == BOTH
            if node.op_type in COMMUTING and is_second and not _is_single(graph, node.input[1]):
                put_first(node)
                changed.append(node.name)
            scores, node = node.output[0], graph.sole_consumer(node.output[0])
    return changed


def _is_single(graph: Graph, tensor: str) -> bool:
    """Whether a tensor is known to hold one value."""
    value = graph.weights.get(tensor)
    shape = graph.shapes.get(tensor) if value is None else value.shape
    return shape is not None and all(size == 1 for size in shape)


def _find_softmax_behind(graph: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    reader: onnx.NodeProto | None = graph.sole_consumer(node.output[0])
    while reader is not None and (reader.op_type in SCALING or moved_inputs(graph, reader)):
        reader = graph.sole_consumer(reader.output[0])
    return reader if reader is not None and reader.op_type == "Softmax" else None


def _find_softmax(graph: Graph, tensor: str) -> onnx.NodeProto | None:
    maker = graph.producer(tensor)
    while maker is not None:
        guarded = guarded_by(graph, maker)
        if guarded is None and not moved_inputs(graph, maker):
            break
        maker = graph.producer(guarded or maker.input[0])
    return maker if maker is not None and maker.op_type == "Softmax" else None


def _count_keys(graph: Graph, softmax: onnx.NodeProto | None) -> int:
    """Returns over how many keys a Softmax goes; 0 where that is not known."""
    shape = graph.shapes.get(softmax.output[0]) if softmax is not None else None
    return shape[attribute(softmax, "axis", -1)] if softmax is not None and shape else 0


def _find_scores(graph: Graph, softmax: onnx.NodeProto) -> onnx.NodeProto | None:
    """Returns the product of queries and keys whose scores a Softmax turns into probabilities."""
    waiting = [softmax.input[0]]
    while waiting:
        maker = graph.producer(waiting.pop())
        if maker is not None and maker.op_type == "MatMul":
            return maker
        if maker is not None and (maker.op_type in SCALING or moved_inputs(graph, maker)):
            waiting += maker.input
    return None


def _has_constant_operand(graph: Graph, product: onnx.NodeProto) -> bool:
    """Whether a product is no layer either, whose constant is a matrix on the right."""
    left, right = (graph.weights.get(name) for name in product.input)
    return left is not None or (right is not None and right.ndim != MATRIX_RANK)
