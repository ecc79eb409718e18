"""Tensors that are quantized more than once."""

from collections.abc import Iterator

from export.lint.finding import WARNING, Finding
from export.lint.graph import DEQUANTIZE, QUANTIZE, LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields tensors with several Q, and Q that read a DQ directly."""
    readers: dict[str, list[str]] = {}
    for node in graph.of(QUANTIZE):
        readers.setdefault(node.input[0], []).append(node.name or node.output[0])
        maker = graph.producer(node.input[0])
        if maker is not None and maker.op_type == DEQUANTIZE:
            yield _report(
                f"{maker.name or maker.output[0]} -> {node.name or node.output[0]}",
                "a Q that reads a DQ",
                "the tensor is rounded twice, and rescaled in between",
                "keep one of the two pairs",
                2 * graph.elements(node.input[0]),
            )
    for tensor, names in readers.items():
        if len(names) > 1:
            yield _report(
                f"{tensor} -> {', '.join(names)}",
                f"{len(names)} Q on one tensor",
                f"{target.title} writes the tensor once for each scale",
                "let all readers share one Q/DQ pair",
                (len(names) - 1) * graph.elements(tensor),
            )


def _report(place: str, what: str, why: str, fix: str, traffic_bytes: int) -> Finding:
    return Finding(
        rule=RULE.name,
        severity=WARNING,
        place=place,
        what=what,
        why=why,
        fix=fix,
        traffic_bytes=traffic_bytes,
    )


RULE = Rule(
    name="double-quantization",
    severities=(WARNING,),
    targets=TENSORRT,
    summary="several Q on one tensor; a Q directly behind a DQ",
    check=check,
)
