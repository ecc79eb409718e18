"""OpenVINO misreads integers that a Concat joins."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from export.lint.finding import WRONG, Finding
from export.lint.graph import QUANTIZE, LintGraph
from export.lint.rule import Rule
from export.lint.rules.openvino_moves import find_maker
from export.lint.rules.zero_point import integer_type
from export.lint.target import Target

_PASSED = frozenset({"AveragePool", "MaxPool", "Relu", "Resize", "Transpose"})
"""What integers are moved past on the way to a convolution, as measured."""


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields signed Q behind a Concat without a guard in between, and Concats of signed INT8."""
    for node in graph.of(QUANTIZE):
        if integer_type(graph, node) != TensorProto.INT8:
            continue
        maker = find_maker(graph, node.input[0])
        if maker is not None and maker.op_type == "Concat":
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{maker.name} -> {node.name or node.output[0]}",
                what="signed INT8 behind a Concat",
                why=f"{target.title} moves the Q to before the Concat and reads its INT8 as UINT8",
                fix="quantize with compress quantize --target openvino (unsigned), or tensorrt "
                "(which guards such edges)",
            )
    for node in graph.of("Conv"):
        if graph.dequantizer(node.input[1]) is None:
            continue
        maker = find_maker(graph, node.input[0], _PASSED)
        if maker is not None and maker.op_type == "Concat":
            yield from _check_joined(graph, maker, node, target)


def _check_joined(
    graph: LintGraph, concat: onnx.NodeProto, layer: onnx.NodeProto, target: Target
) -> Iterator[Finding]:
    """Yields at most one finding for the integers that a Concat hands to a Conv as they are."""
    pairs = [graph.dequantizer(name) for name in concat.input]
    if None in pairs:
        return
    if all(graph.integer_type(name) != TensorProto.INT8 for name in concat.input):
        return
    yield Finding(
        rule=RULE.name,
        severity=WRONG,
        place=f"{concat.name} -> {layer.name}",
        what="signed INT8 pairs in front of a Concat and none behind it",
        why=f"{target.title} moves the DQ to behind the Concat and, where it joins integers, reads "
        "its INT8 as UINT8",
        fix="quantize with compress quantize --target openvino (unsigned); framefit engines "
        "compare with --reference-runtime onnxruntime says what it costs here",
    )


RULE = Rule(
    name="openvino-concat",
    severities=(WRONG,),
    targets=("openvino",),
    summary="signed INT8 behind a Concat, or in front of one that a Conv with integer weights "
    "reads, which OpenVINO 2026.4 reads as unsigned",
    check=check,
)
