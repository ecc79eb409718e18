"""MatMul - Softmax - MatMul: attention that TensorRT would compute in one kernel."""

from collections.abc import Iterator

import onnx

from export.lint.finding import INFO, WARNING, Finding
from export.lint.graph import LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.rules.precision_flow import POINTWISE
from export.lint.target import Target

_LONGEST = 8
"""Nodes between the Softmax and its MatMuls that are looked through (scale, mask, casts, Q/DQ)."""


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields attention blocks, with a warning where only some of their MatMuls are quantized."""
    for softmax in graph.of("Softmax"):
        before = _walk_back(graph, softmax.input[0])
        after = _walk_forward(graph, softmax.output[0])
        if before is None or after is None or _has_fixed_values(graph, after):
            continue
        states = [_state(graph, node) for node in (before, after)]
        if states[0] == states[1] and "half" not in states:
            continue
        yield Finding(
            rule=RULE.name,
            severity=WARNING if "int8" in states or "half" in states else INFO,
            place=f"{before.name} -> {softmax.name} -> {after.name}",
            what=f"attention whose products are {states[0]} and {states[1]}",
            why=f"{target.title} computes attention in one kernel only where both are alike",
            fix="quantize both operands of both products, or none (none is usually faster)",
            traffic_bytes=2 * target.float_bytes * graph.elements(softmax.output[0]),
        )


def _walk_back(graph: LintGraph, tensor: str) -> onnx.NodeProto | None:
    for _ in range(_LONGEST):
        node = graph.producer(tensor)
        if node is None or node.op_type == "MatMul":
            return node
        if node.op_type not in _LOOKED_THROUGH:
            return None
        moving = [name for name in node.input if name and not graph.is_fixed(name)]
        if not moving:
            return None
        tensor = moving[0]
    return None


def _walk_forward(graph: LintGraph, tensor: str) -> onnx.NodeProto | None:
    for _ in range(_LONGEST):
        readers = graph.consumers(tensor)
        if len(readers) != 1:
            return None
        if readers[0].op_type == "MatMul":
            return readers[0]
        if readers[0].op_type not in _LOOKED_THROUGH:
            return None
        tensor = readers[0].output[0]
    return None


def _has_fixed_values(graph: LintGraph, product: onnx.NodeProto) -> bool:
    """Whether a product behind a Softmax is no attention: a mean of constants, or a layer."""
    return any(graph.is_fixed(name) for name in product.input[:2])


def _state(graph: LintGraph, node: onnx.NodeProto) -> str:
    found = [graph.dequantizer(name) is not None for name in node.input[:2]]
    return "int8" if all(found) else "half" if any(found) else "float"


_LOOKED_THROUGH = POINTWISE | {
    "QuantizeLinear",
    "DequantizeLinear",
    "Reshape",
    "Transpose",
    "Where",
    "Dropout",
}

RULE = Rule(
    name="attention",
    severities=(WARNING, INFO),
    targets=TENSORRT,
    summary="attention with Q/DQ on some of its operands only",
    check=check,
)
