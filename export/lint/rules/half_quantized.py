"""Layers with Q/DQ on one operand only."""

from collections.abc import Iterator

import onnx

from export.lint.finding import WARNING, Finding
from export.lint.graph import LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.rules.int4_weights import is_int4
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields layers of which one operand is dequantized and the other is float."""
    for node in graph.of("Conv", "ConvTranspose", "Gemm", "MatMul"):
        data, weight = (graph.dequantizer(name) is not None for name in node.input[:2])
        if data == weight or (weight and is_int4(graph, node)):
            continue
        missing, present = (node.input[0], "weight") if weight else (node.input[1], "activation")
        yield _report(node, missing, present, target)


def _report(node: onnx.NodeProto, missing: str, present: str, target: Target) -> Finding:
    return Finding(
        rule=RULE.name,
        severity=WARNING,
        place=f"{missing} -> {node.name or node.output[0]}",
        what=f"a {node.op_type} with Q/DQ on its {present} only",
        why=f"{target.title} computes it in float, and converts the {present} in a kernel before",
        fix=f"put Q/DQ on '{missing}' too, or take the other pair away",
    )


RULE = Rule(
    name="half-quantized",
    severities=(WARNING,),
    targets=TENSORRT,
    summary="layers with Q/DQ on the activation or on the weight only",
    check=check,
)
