"""OpenVINO computes activations before a pool, and pads integers with another number than 0."""

from collections.abc import Iterator

import numpy as np
import onnx

from artifacts.openvino_pooling import JOINED_WITH_CONV, falls_somewhere
from export.lint.finding import WRONG, Finding
from export.lint.graph import DEQUANTIZE, MOVING, LintGraph, attribute
from export.lint.rule import Rule
from export.lint.rules.openvino_moves import find_maker, has_bias
from export.lint.target import Target

_MOVING = MOVING | {"Concat", "MaxPool", "Pad", "Slice"}
"""What a zero point is moved past, on its way to a pool."""


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields the pools behind which, or on whose border, other values arrive."""
    for node in graph.of("MaxPool"):
        layer = find_maker(graph, node.input[0], JOINED_WITH_CONV)
        if layer is not None and _is_turned(graph, layer, node):
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{layer.name} -> {node.name or node.output[0]}",
                what="a Conv, a MaxPool, and an activation that falls somewhere",
                why=f"{target.title} computes the activation before the pool, in float too",
                fix="put the activation before the pool, or quantize with compress quantize, which "
                "puts a guard between them",
            )
    for node in graph.of("AveragePool"):
        shifted = _find_shifted(graph, node)
        if shifted is not None:
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{shifted.name} -> {node.name or node.output[0]}",
                what="an AveragePool counts its border, behind a DQ with a zero point",
                why=f"{target.title} moves the zero point behind the pool and pads with another "
                "number than 0",
                fix="quantize symmetrically, or with compress quantize, which puts a guard there",
            )


def _is_turned(graph: LintGraph, layer: onnx.NodeProto, pool: onnx.NodeProto) -> bool:
    is_bare = graph.is_integer_layer(layer) and not has_bias(graph, layer)
    if layer.op_type != "Conv" or is_bare or pool.output[0] in graph.outputs:
        return False
    return falls_somewhere([reader.op_type for reader in graph.consumers(pool.output[0])])


def _find_shifted(graph: LintGraph, pool: onnx.NodeProto) -> onnx.NodeProto | None:
    """Returns the DQ whose zero point is moved behind a pool that counts zeros around its input."""
    maker = graph.producer(pool.input[0])
    is_counted = attribute(pool, "count_include_pad", 0) and any(attribute(pool, "pads", []))
    if maker is None or not (is_counted or maker.op_type == "Pad"):
        return None
    return _find_zero_point(graph, maker)


def _find_zero_point(graph: LintGraph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Returns a DQ with a zero point that a node's values come from, if only moved since."""
    if node.op_type == DEQUANTIZE:
        zero_point = graph.constant(node.input[2]) if len(node.input) > 2 else None
        is_shifted = zero_point is not None and bool(np.any(zero_point))
        return node if is_shifted and not graph.is_weight(node) else None
    if node.op_type not in _MOVING:
        return None
    names = node.input if node.op_type == "Concat" else node.input[:1]
    makers = (graph.producer(name) for name in names)
    found = (_find_zero_point(graph, maker) for maker in makers if maker is not None)
    return next((item for item in found if item is not None), None)


RULE = Rule(
    name="openvino-pooling",
    severities=(WRONG,),
    targets=("openvino",),
    summary="a MaxPool between a Conv and Abs, SiLU, GELU and the like, which OpenVINO 2026.4 "
    "computes before the pool, in float too; means that count zeros around what comes from a DQ "
    "with a zero point",
    check=check,
)
