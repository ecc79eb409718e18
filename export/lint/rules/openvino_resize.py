"""OpenVINO shrinks pictures without the antialiasing that a Resize asks for."""

from collections.abc import Iterator

from export.lint.finding import WRONG, Finding
from export.lint.graph import LintGraph, attribute
from export.lint.rule import Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields every Resize with antialiasing that makes an axis shorter.

    Where none gets shorter antialiasing changes nothing.
    """
    for node in graph.of("Resize"):
        before, after = graph.shape(node.input[0]), graph.shape(node.output[0])
        if not attribute(node, "antialias", 0) or before is None or after is None:
            continue
        if any(new < old for old, new in zip(before, after, strict=True)):
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=node.name or node.output[0],
                what=f"Resize with antialiasing from {list(before)} to {list(after)}",
                why=f"{target.title} leaves the antialiasing out, in float too",
                fix="shrink outside the network, by averages (AveragePool), or with antialias=0",
            )


RULE = Rule(
    name="openvino-resize",
    severities=(WRONG,),
    targets=("openvino",),
    summary="Resize with antialiasing that shrinks, which OpenVINO 2026.4 computes without",
    check=check,
)
