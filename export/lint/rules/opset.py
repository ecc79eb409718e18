"""The operator set against what the target's reader promises."""

from collections.abc import Iterator

from export.lint.finding import WARNING, Finding
from export.lint.graph import LintGraph
from export.lint.rule import Rule
from export.lint.target import TARGETS, Target

OLDEST_OPSET = 9


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields a finding where the opset is newer or older than promised."""
    if OLDEST_OPSET <= graph.opset <= target.newest_opset:
        return
    yield Finding(
        rule=RULE.name,
        severity=WARNING,
        place="the graph",
        what=f"opset {graph.opset}",
        why=f"{target.title} promises to read opset {OLDEST_OPSET} to {target.newest_opset}; "
        "operators that did not change are read all the same",
        fix="export with opset 19 (what framefit export onnx writes)",
    )


RULE = Rule(
    name="opset",
    severities=(WARNING,),
    targets=tuple(TARGETS),
    summary="operator sets that the reader does not promise to read",
    check=check,
)
