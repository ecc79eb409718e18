"""Per-channel scales: the axis that the layer's INT8 kernel can use."""

from collections.abc import Iterator

import onnx

from export.lint.finding import WARNING, Finding
from export.lint.graph import DEQUANTIZE, QUANTIZE, LintGraph, attribute
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields layers whose weight's scales run along another axis than the output channels."""
    for node in graph.of("Conv", "ConvTranspose", "Gemm", "MatMul"):
        dequantize = graph.producer(node.input[1])
        if dequantize is None or dequantize.op_type != DEQUANTIZE:
            continue
        axis, wanted = _axis(graph, dequantize), _output_axis(graph, node)
        if axis is not None and wanted is not None and axis != wanted:
            yield _report(
                f"{dequantize.name or dequantize.output[0]} -> {node.name or node.output[0]}",
                f"weight scales along axis {axis}",
                f"an INT8 {node.op_type} scales its output channels, which are axis {wanted}; "
                "so the layer is computed in float",
                f"quantize the weight along axis {wanted}",
            )
    for node in graph.of(QUANTIZE):
        if _axis(graph, node) is not None and not graph.is_fixed(node.input[0]):
            yield _report(
                node.name or node.output[0],
                "an activation with a scale per channel",
                "INT8 layers take one scale per activation; so the layer is computed in float",
                "use one scale for the tensor",
            )


def _axis(graph: LintGraph, node: onnx.NodeProto) -> int | None:
    """Returns the axis of per-channel scales; None where there is one scale, or blocks."""
    scales = graph.shape(node.input[1])
    rank = graph.rank(node.input[0])
    if scales is None or len(scales) != 1 or scales[0] == 1 or rank is None:
        return None
    axis = int(attribute(node, "axis", 1))
    return axis + rank if axis < 0 else axis


def _output_axis(graph: LintGraph, node: onnx.NodeProto) -> int | None:
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    if node.op_type == "MatMul":
        rank = graph.rank(node.input[1])
        return None if rank is None else rank - 1
    return 1 if node.op_type == "ConvTranspose" else 0


def _report(place: str, what: str, why: str, fix: str) -> Finding:
    return Finding(rule=RULE.name, severity=WARNING, place=place, what=what, why=why, fix=fix)


RULE = Rule(
    name="scale-axis",
    severities=(WARNING,),
    targets=TENSORRT,
    summary="weight scales that do not run along the output channels; activations per channel",
    check=check,
)
