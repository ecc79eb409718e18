"""OpenVINO miscomputes quantizers behind some reductions."""

from collections.abc import Iterator

import onnx

from artifacts.openvino_reductions import EXTREMA, SCALING, drops_an_inner_axis
from export.lint.finding import WRONG, Finding
from export.lint.graph import QUANTIZE, LintGraph
from export.lint.rule import Rule
from export.lint.rules.openvino_moves import find_maker
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields Q that follow an extremum, or the scaled channels of a reduction."""
    for node in graph.of(QUANTIZE):
        maker = find_maker(graph, node.input[0])
        if maker is None:
            continue
        extremum = _find_extremum(graph, maker)
        if extremum is not None:
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{extremum.name} -> {node.name or node.output[0]}",
                what=f"a quantizer behind {extremum.op_type}",
                why=f"{target.title} fuses them and computes other integers",
                fix="put a Max of the tensor with itself in front of the quantizer; compress "
                "quantize does",
            )
        elif _drops_an_inner_axis(graph, maker) and _is_scaled(graph, node.input[0]):
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{maker.name} -> {node.name or node.output[0]}",
                what=f"a quantizer behind {maker.op_type}, with a value per channel in between",
                why=f"{target.title} fuses them and computes other integers",
                fix="keep the layers that read it in float; compress quantize does",
            )


def _find_extremum(graph: LintGraph, maker: onnx.NodeProto) -> onnx.NodeProto | None:
    """Returns the extremum that a tensor's maker is, or that it joins with others."""
    if maker.op_type in EXTREMA:
        return maker
    joined = [find_maker(graph, name) for name in maker.input] if maker.op_type == "Concat" else []
    return next((node for node in joined if node is not None and node.op_type in EXTREMA), None)


def _drops_an_inner_axis(graph: LintGraph, node: onnx.NodeProto) -> bool:
    given = graph.constant(node.input[1]) if len(node.input) > 1 else None
    return drops_an_inner_axis(node, graph.rank(node.input[0]) if node.input else None, given)


def _is_scaled(graph: LintGraph, tensor: str) -> bool:
    """Whether one of the nodes between a reduction and its quantizer has a value per channel."""
    node = graph.producer(tensor)
    while node is not None and not node.op_type.startswith("Reduce"):
        fixed = [name for name in node.input if name and graph.is_fixed(name)]
        if node.op_type in SCALING and any(graph.elements(name) > 1 for name in fixed):
            return True
        node = graph.producer(next(name for name in node.input if name not in fixed))
    return False


RULE = Rule(
    name="openvino-reduction",
    severities=(WRONG,),
    targets=("openvino",),
    summary="Q behind a maximum or minimum, or behind channels scaled after the mean over an "
    "inner axis, which OpenVINO 2026.4 miscomputes",
    check=check,
)
