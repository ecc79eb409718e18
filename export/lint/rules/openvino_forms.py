"""Operators in a form for which OpenVINO's CPU plugin has no fast kernel, or another layout."""

from collections.abc import Iterator

import onnx

from artifacts.openvino_ranks import BROADCASTING, changes_layout
from export.lint.finding import WARNING, Finding
from export.lint.graph import LintGraph
from export.lint.rule import Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields constants per channel of a lower rank, shared slopes of PReLUs, and HardSigmoids."""
    for node in graph.of(*BROADCASTING, "HardSigmoid"):
        if node.op_type == "HardSigmoid":
            what, why = "HardSigmoid", "computes it one value at a time, in a reference kernel"
        elif _has_low_constant(graph, node):
            what = "a constant per channel with fewer axes than the activation"
            why = "computes it channel by channel, and reorders the activation before and after"
        elif node.op_type == "PRelu" and _is_shared(graph, node.input[1]):
            what, why = "a slope that several PReLUs read", "does not fuse it into the layer before"
        else:
            continue
        yield Finding(
            rule=RULE.name,
            severity=WARNING,
            place=node.name or node.output[0],
            what=what,
            why=f"{target.title} {why}",
            fix="compress quantize --target openvino writes it in the fast form",
        )


def _has_low_constant(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Whether a constant [C, 1, 1] meets an activation [N, C, H, W], or likewise."""
    if len(node.input) != 2:
        return False
    for name, other in (node.input, reversed(node.input)):
        shape, rank = graph.shape(name), graph.rank(other)
        if graph.is_folded(name) and shape is not None and rank is not None:
            return changes_layout(shape, rank)
    return False


def _is_shared(graph: LintGraph, slope: str) -> bool:
    return graph.is_folded(slope) and len(graph.consumers(slope)) > 1


RULE = Rule(
    name="openvino-form",
    severities=(WARNING,),
    targets=("openvino",),
    summary="constants per channel of a lower rank, shared slopes of PReLUs, HardSigmoid, which "
    "OpenVINO 2026.4 computes slowly",
    check=check,
)
