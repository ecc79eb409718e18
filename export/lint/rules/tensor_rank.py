"""Tensors with more axes than TensorRT has."""

from collections.abc import Iterator

from export.lint.finding import ERROR, Finding
from export.lint.graph import LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target

MOST_AXES = 8


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields nodes whose result has more than 8 axes."""
    for node in graph.nodes:
        for name in node.output:
            rank = graph.rank(name) if name else None
            if rank is not None and rank > MOST_AXES:
                yield Finding(
                    rule=RULE.name,
                    severity=ERROR,
                    place=node.name or name,
                    what=f"a tensor of {rank} axes",
                    why=f"{target.title} has tensors of at most {MOST_AXES} axes",
                    fix="reshape with fewer axes: join neighbours that stay together",
                )


RULE = Rule(
    name="tensor-rank",
    severities=(ERROR,),
    targets=TENSORRT,
    summary="tensors of more than 8 axes",
    check=check,
    looks_inside=True,
)
