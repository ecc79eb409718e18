"""OpenVINO misreads signed INT8 behind a Concat."""

from collections.abc import Iterator

from onnx import TensorProto

from export.lint.finding import WRONG, Finding
from export.lint.graph import QUANTIZE, LintGraph
from export.lint.rule import Rule
from export.lint.rules.openvino_moves import find_maker
from export.lint.rules.zero_point import integer_type
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields signed Q that follow a Concat without a guard in between."""
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


RULE = Rule(
    name="openvino-concat",
    severities=(WRONG,),
    targets=("openvino",),
    summary="signed INT8 behind a Concat, which OpenVINO 2026.4 reads as unsigned",
    check=check,
)
