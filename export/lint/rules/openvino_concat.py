"""OpenVINO misreads signed INT8 behind a Concat."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from export.lint.finding import WRONG, Finding
from export.lint.graph import QUANTIZE, LintGraph
from export.lint.rule import Rule
from export.lint.rules.zero_point import integer_type
from export.lint.target import Target

_PASSED = frozenset(
    {
        "Add",
        "BatchNormalization",
        "Clip",
        "Div",
        "Mul",
        "Relu",
        "Reshape",
        "Squeeze",
        "Sub",
        "Transpose",
        "Unsqueeze",
    }
)
"""OpenVINO moves a Q to before them; those with two operands, where one is constant."""


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields signed Q that follow a Concat without a guard in between."""
    for node in graph.of(QUANTIZE):
        if integer_type(graph, node) != TensorProto.INT8:
            continue
        maker = _maker(graph, node.input[0])
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


def _maker(graph: LintGraph, tensor: str) -> onnx.NodeProto | None:
    maker = graph.producer(tensor)
    while maker is not None and maker.op_type in _PASSED:
        computed = [name for name in maker.input if name and not graph.is_fixed(name)]
        if len(computed) != 1:
            return None
        maker = graph.producer(computed[0])
    return maker


RULE = Rule(
    name="openvino-concat",
    severities=(WRONG,),
    targets=("openvino",),
    summary="signed INT8 behind a Concat, which OpenVINO 2026.4 reads as unsigned",
    check=check,
)
