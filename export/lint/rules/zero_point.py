"""Zero points: TensorRT's quantization is symmetric and signed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from export.lint.finding import ERROR, WRONG, Finding
from export.lint.graph import DEQUANTIZE, QUANTIZE, LintGraph, attribute, type_name
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target

_TAKEN = frozenset(
    TensorProto.DataType.Value(name)
    for name in ("INT8", "INT4", "FLOAT8E4M3FN", "FLOAT4E2M1", "UINT8", "UNDEFINED")
)
_QUANTIZE_AGAIN = "quantize with compress quantize --target tensorrt"


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields at most one finding per Q or DQ: a zero point, or integers that are not int8."""
    for node in graph.of(QUANTIZE, DEQUANTIZE):
        kind = integer_type(graph, node)
        zero_point = find_zero_point(graph, node)
        if kind == TensorProto.UINT8 and _is_input_read(graph, node):
            yield Finding(
                rule=RULE.name,
                severity=ERROR,
                place=node.name or node.output[0],
                what="a DQ on an input of type UINT8",
                why=f"{target.title} has UINT8 at inputs with a Cast to float, and nowhere else",
                fix="write it as a Cast to float, a Sub of its zero point and a Mul by its scale",
            )
        elif kind not in _TAKEN:
            yield _report(node, ERROR, f"integers of type {type_name(kind)}", _why(node, target))
        elif zero_point is not None:
            worst = int(np.abs(np.asarray(zero_point, np.int64)).max())
            yield _report(
                node,
                ERROR,
                f"a zero point of {worst}",
                f"{target.title} takes symmetric scales only",
            )
        elif kind == TensorProto.UINT8 and _is_constant_data(graph, node):
            yield _report(
                node, ERROR, "a weight of type UINT8", f"{target.title} takes signed weights only"
            )
        elif kind == TensorProto.UINT8:
            yield _report(
                node,
                WRONG,
                "integers of type UINT8 with zero point 0",
                f"{target.title} builds them as INT8 (the same plan, byte for byte), so every "
                "value above 127 scale steps is cut off",
            )


def find_zero_point(graph: LintGraph, node: onnx.NodeProto) -> NDArray[Any] | None:
    """Returns the constant zero points of a Q or DQ; None where all are 0, or none are known."""
    name = node.input[2] if len(node.input) > 2 else ""
    values = graph.constant(name) if name else None
    return values if values is not None and np.asarray(values, np.float32).any() else None


def integer_type(graph: LintGraph, node: onnx.NodeProto) -> int:
    """Returns the `TensorProto` type of a Q's output or a DQ's input."""
    if node.op_type == DEQUANTIZE:
        return graph.element_type(node.input[0])
    if len(node.input) > 2 and node.input[2]:
        return graph.element_type(node.input[2])
    return int(attribute(node, "output_dtype", 0)) or int(TensorProto.UINT8)


def _is_constant_data(graph: LintGraph, node: onnx.NodeProto) -> bool:
    return node.op_type == DEQUANTIZE and graph.is_fixed(node.input[0])


def _is_input_read(graph: LintGraph, node: onnx.NodeProto) -> bool:
    inputs = {value.name for value in graph.inputs}
    return node.op_type == DEQUANTIZE and node.input[0] in inputs


def _why(node: onnx.NodeProto, target: Target) -> str:
    if node.op_type == DEQUANTIZE:
        return f"{target.title} dequantizes INT8, INT4, FP8 and FP4 only"
    return f"{target.title} quantizes to INT8, INT4, FP8 and FP4 only"


def _report(node: onnx.NodeProto, severity: str, what: str, why: str) -> Finding:
    return Finding(
        rule=RULE.name,
        severity=severity,
        place=node.name or node.output[0],
        what=what,
        why=why,
        fix=_fix(what),
    )


def _fix(what: str) -> str:
    if "INT32" in what:
        return "keep the bias in float: TensorRT adds it inside the layer; " + _QUANTIZE_AGAIN
    return _QUANTIZE_AGAIN


RULE = Rule(
    name="quantized-type",
    severities=(ERROR, WRONG),
    targets=TENSORRT,
    summary="zero points other than 0, unsigned and 16-bit integers, int32 biases behind a DQ",
    check=check,
    looks_inside=True,
)
