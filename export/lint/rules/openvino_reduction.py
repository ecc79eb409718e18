"""OpenVINO miscomputes some reductions, and quantizers behind others."""

from collections.abc import Iterator

import onnx

from artifacts.openvino_axes import MISREAD, read_missed_axes
from artifacts.openvino_reductions import EXTREMA, find_reduced
from export.lint.finding import WRONG, Finding
from export.lint.graph import QUANTIZE, LintGraph
from export.lint.rule import Rule
from export.lint.rules.openvino_moves import find_maker
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields reductions of some axes, and Q behind an extremum or scaled channels of a mean."""
    yield from _check_axes(graph, target)
    reduced = find_reduced(graph.nodes, graph.shape, graph.constant)
    for node in graph.of(QUANTIZE):
        extremum = _find_extremum(graph, find_maker(graph, node.input[0]))
        scaled = reduced.get(node.input[0])
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
        elif scaled and scaled.is_misread and graph.shape(node.input[0]) == scaled.shape:
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{scaled.reduction} -> {node.name or node.output[0]}",
                what="a quantizer behind a reduction, with a value per channel in between",
                why=f"{target.title} fuses them and computes other integers",
                fix="keep the layers that read it in float; compress quantize does",
            )


def _check_axes(graph: LintGraph, target: Target) -> Iterator[Finding]:
    for node in graph.of(*MISREAD):
        axes, shape = read_missed_axes(node), graph.shape(node.input[0])
        if axes and (shape is None or len(axes) < len(shape)):
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=node.name or node.output[0],
                what=f"{node.op_type} over axes {list(axes)}, given as an attribute",
                why=f"{target.title} does not read them and reduces all axes, in float too",
                fix="export with opset 18 or newer; compress quantize writes it as sums",
            )


def _find_extremum(graph: LintGraph, maker: onnx.NodeProto | None) -> onnx.NodeProto | None:
    """Returns the extremum that a tensor's maker is, or that it joins with others."""
    if maker is None or maker.op_type in EXTREMA:
        return maker
    joined = [find_maker(graph, name) for name in maker.input] if maker.op_type == "Concat" else []
    return next((node for node in joined if node is not None and node.op_type in EXTREMA), None)


RULE = Rule(
    name="openvino-reduction",
    severities=(WRONG,),
    targets=("openvino",),
    summary="ReduceL1, ReduceLogSum and ReduceLogSumExp of some axes below opset 18, Q behind a "
    "maximum or minimum, or behind channels scaled after the mean over an inner axis, which "
    "OpenVINO 2026.4 miscomputes",
    check=check,
)
