"""Concatenations of tensors with different scales."""

from collections.abc import Iterator

import numpy as np

from export.lint.finding import WARNING, Finding
from export.lint.graph import DEQUANTIZE, LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields Concat nodes whose operands come through DQ with more than one scale."""
    for node in graph.of("Concat"):
        scales: dict[str, float] = {}
        for name in node.input:
            maker = graph.producer(name)
            if maker is None or maker.op_type != DEQUANTIZE:
                continue
            value = graph.constant(maker.input[1])
            if value is not None and value.size == 1:
                scales[name] = float(np.asarray(value, np.float64).reshape(-1)[0])
        if len(scales) < 2 or len(set(scales.values())) == 1:
            continue
        largest = max(scales, key=lambda name: scales[name])
        others = [name for name in scales if scales[name] != scales[largest]]
        yield Finding(
            rule=RULE.name,
            severity=WARNING,
            place=f"{', '.join(others)} -> {node.name or node.output[0]}",
            what=f"a Concat of {len(set(scales.values()))} different scales",
            why=f"{target.title} joins INT8 operands of one scale; others are rescaled, and "
            "rounded twice",
            fix=f"give all of them the scale of '{largest}', or quantize behind the Concat only",
            traffic_bytes=sum(2 * graph.elements(name) for name in others),
        )


RULE = Rule(
    name="concat-scales",
    severities=(WARNING,),
    targets=TENSORRT,
    summary="a Concat whose INT8 operands have different scales",
    check=check,
)
