"""Types of tensors that the target does not compute with."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from export.lint.finding import ERROR, INFO, WARNING, Finding
from export.lint.graph import DEQUANTIZE, QUANTIZE, LintGraph, attribute, type_name
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target

_REFUSED = frozenset(
    TensorProto.DataType.Value(name)
    for name in (
        "INT16",
        "UINT16",
        "UINT32",
        "UINT64",
        "UINT4",
        "INT2",
        "UINT2",
        "STRING",
        "COMPLEX64",
        "COMPLEX128",
        "FLOAT8E4M3FNUZ",
        "FLOAT8E5M2",
        "FLOAT8E5M2FNUZ",
        "FLOAT8E8M0",
    )
    if hasattr(TensorProto, name)
)
_ONLY_BEHIND_Q = frozenset(
    TensorProto.DataType.Value(name) for name in ("FLOAT8E4M3FN", "FLOAT4E2M1", "INT4")
)

_SINCE = {TensorProto.FLOAT8E4M3FN: "8.9", TensorProto.FLOAT4E2M1: "10.0"}
"""Compute capability of the first GPUs that have a type."""


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields the first tensor of each refused or narrowed type, and every UINT8 inside."""
    for value in graph.inputs:
        if not value.type.HasField("tensor_type"):
            yield Finding(
                rule=RULE.name,
                severity=ERROR,
                place=value.name,
                what="an input that is a sequence or optional",
                why=f"{target.title} has tensors only",
                fix="give each tensor an input of its own",
            )
    seen: set[int] = set()
    for name in _tensors(graph):
        kind = graph.element_type(name)
        if kind in _REFUSED and kind not in seen:
            yield _report(
                name, ERROR, kind, f"{target.title} has no such type", "use float32 or int32"
            )
        elif kind == TensorProto.DOUBLE and kind not in seen:
            yield _report(
                name, WARNING, kind, f"{target.title} computes it in float32", "export in float32"
            )
        elif kind in _SINCE and kind not in seen:
            why = f"{target.title} builds it for compute capability {_SINCE[kind]} and newer only"
            yield _report(
                name, INFO, kind, why, "name such GPUs with export trt --sm, or take INT8"
            )
        elif kind == TensorProto.INT64 and kind not in seen and _is_output(graph, name):
            yield _report(
                name, INFO, kind, "an output of 8 bytes per value is copied", "cast it to int32"
            )
        seen.add(kind)
    yield from _unsigned(graph, target)


def _tensors(graph: LintGraph) -> Iterator[str]:
    yield from (value.name for value in graph.inputs)
    yield from (name for name in graph.initializers if graph.consumers(name))
    for node in graph.nodes:
        yield from (name for name in node.output if name)


def _is_output(graph: LintGraph, name: str) -> bool:
    return name in graph.outputs


def _unsigned(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """UINT8 may enter and leave a network, and nothing but a Cast may touch it there."""
    for node in graph.nodes:
        if node.op_type in (QUANTIZE, DEQUANTIZE):
            continue
        for name in _narrow_casts(graph, node):
            kind = graph.element_type(name)
            why = f"{target.title} has it between Q and DQ only"
            yield _report(name, ERROR, kind, why, "quantize with Q/DQ instead of Cast")
        for name in _unsigned_operands(graph, node):
            yield _report(
                name,
                ERROR,
                TensorProto.UINT8,
                f"{target.title} has it at inputs with a Cast to float, and nowhere else",
                "cast the input to float first",
            )


def _narrow_casts(graph: LintGraph, node: onnx.NodeProto) -> Iterator[str]:
    if node.op_type in ("Cast", "CastLike"):
        names = (node.input[0], node.output[0])
        yield from (name for name in names if graph.element_type(name) in _ONLY_BEHIND_Q)


def _unsigned_operands(graph: LintGraph, node: onnx.NodeProto) -> Iterator[str]:
    inputs = {value.name for value in graph.inputs}
    if node.op_type == "Cast":
        is_result = attribute(node, "to", 0) == TensorProto.UINT8
        if is_result and node.output[0] not in graph.outputs:
            yield node.output[0]
        return
    for name in node.input:
        if name in inputs and graph.element_type(name) == TensorProto.UINT8:
            yield name


def _report(name: str, severity: str, kind: int, why: str, fix: str) -> Finding:
    return Finding(
        rule=RULE.name,
        severity=severity,
        place=name,
        what=f"a tensor of type {type_name(kind)}",
        why=why,
        fix=fix,
    )


RULE = Rule(
    name="element-type",
    severities=(ERROR, WARNING, INFO),
    targets=TENSORRT,
    summary="16-bit and unsigned integers, text, complex numbers, double, int64 outputs",
    check=check,
    looks_inside=True,
)
