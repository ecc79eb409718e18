"""Float layers between quantized ones."""

from collections.abc import Iterator

from export.lint.finding import INFO, WARNING, Finding
from export.lint.graph import LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.rules.precision_flow import find_makers, is_float_layer
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields layers with constant weights that compute in float in a quantized network."""
    if not graph.is_quantized:
        return
    for node in graph.of("Conv", "ConvTranspose", "Gemm", "MatMul"):
        if not is_float_layer(graph, node):
            continue
        makers = find_makers(graph, node.input[0])
        is_behind = any(maker is not None and graph.is_integer_layer(maker) for maker in makers)
        size = graph.elements(node.output[0])
        yield Finding(
            rule=RULE.name,
            severity=WARNING if is_behind else INFO,
            place=node.name or node.output[0],
            what=f"a {node.op_type} in float" + (" behind an INT8 layer" if is_behind else ""),
            why=f"{target.title} changes nothing about that: no Q/DQ, no INT8",
            fix="quantize it, unless it was kept in float for its accuracy",
            traffic_bytes=size * (target.float_bytes - 1) if is_behind else 0,
        )


RULE = Rule(
    name="float-island",
    severities=(WARNING, INFO),
    targets=TENSORRT,
    summary="layers that stay in float in a quantized network",
    check=check,
)
