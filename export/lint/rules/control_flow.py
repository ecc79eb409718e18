"""If and Loop."""

from collections.abc import Iterator

import onnx

from export.lint.finding import ERROR, WARNING, Finding
from export.lint.graph import LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields one finding per If, Loop and Scan."""
    for node in graph.of("If", "Loop", "Scan"):
        ranks = _branch_ranks(node) if node.op_type == "If" else None
        if ranks is not None and not graph.is_fixed(node.input[0]):
            yield Finding(
                rule=RULE.name,
                severity=ERROR,
                place=node.name or node.output[0],
                what=f"an If whose branches give {ranks[0]} and {ranks[1]} axes",
                why=f"{target.title} needs one number of axes",
                fix="reshape inside a branch, or decide outside the network",
            )
        else:
            yield Finding(
                rule=RULE.name,
                severity=WARNING,
                place=node.name or node.output[0],
                what=f"control flow ({node.op_type})",
                why="nothing is fused across it, and its time depends on the data",
                fix="export both branches as networks of their own, or unroll it",
            )


def _branch_ranks(node: onnx.NodeProto) -> tuple[int, int] | None:
    """Returns the numbers of axes of the first output that differs between the branches."""
    branches = {item.name: item.g for item in node.attribute}
    pairs = zip(branches["then_branch"].output, branches["else_branch"].output, strict=False)
    for then, other in pairs:
        kinds = [value.type.tensor_type for value in (then, other)]
        if not all(kind.HasField("shape") for kind in kinds):
            continue
        first, second = (len(kind.shape.dim) for kind in kinds)
        if first != second:
            return first, second
    return None


RULE = Rule(
    name="control-flow",
    severities=(ERROR, WARNING),
    targets=TENSORRT,
    summary="If, Loop and Scan; branches of different rank",
    check=check,
)
