"""Edges where a tensor changes between INT8 and float in a kernel of its own."""

from collections.abc import Iterator

import onnx

from export.lint.finding import INFO, WARNING, Finding
from export.lint.graph import DEQUANTIZE, LAYERS, QUANTIZE, LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.rules.precision_flow import (
    COMMUTING,
    JOINED,
    POINTWISE,
    REDUCTIONS,
    find_makers,
)
from export.lint.target import Target

_INPUT_BYTES = 4
"""`export trt` leaves inputs in float32."""


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields the Q that follow float, and the DQ that feed float."""
    for node in graph.of(QUANTIZE):
        if not graph.is_fixed(node.input[0]):
            yield from _check_quantize(graph, node, target)
    for node in graph.of(DEQUANTIZE):
        if not graph.is_weight(node):
            yield from _check_dequantize(graph, node, target)


def _check_quantize(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Iterator[Finding]:
    tensor = node.input[0]
    makers = find_makers(graph, tensor)
    if any(maker is not None and _is_joined(graph, maker, target) for maker in makers):
        return
    is_input = all(maker is None for maker in makers)
    source = next((maker for maker in makers if maker is not None), None)
    label = "the input" if source is None else f"{source.name} ({source.op_type})"
    yield _report(
        graph,
        target,
        tensor,
        place=f"{label} -> {node.name or node.output[0]}",
        change="float to INT8",
        severity=INFO if is_input or _is_small(source) else WARNING,
        why="nothing quantized makes it, so quantizing it is a kernel of its own",
        fix="none: a network's input is float" if is_input else _suggest(source, target),
    )


def _is_joined(graph: LintGraph, maker: onnx.NodeProto, target: Target) -> bool:
    if maker.op_type == "AveragePool" and not target.is_rtx:
        return graph.dequantizer(maker.input[0]) is not None
    return graph.is_integer_layer(maker) or maker.op_type in JOINED | {DEQUANTIZE}


def _is_small(source: onnx.NodeProto | None) -> bool:
    return source is not None and source.op_type in REDUCTIONS


def _suggest(source: onnx.NodeProto | None, target: Target) -> str:
    if source is not None and source.op_type in LAYERS:
        return f"quantize {source.name} as well, or leave what follows in float"
    if source is not None and source.op_type == "AveragePool" and not target.is_rtx:
        return "put a Q/DQ pair before the pool too, which then computes in INT8"
    return "leave the layer behind it in float if it is small, or join the float regions around it"


def _check_dequantize(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Iterator[Finding]:
    readers = graph.consumers(node.output[0])
    slow = [reader for reader in readers if not _takes_integers(graph, reader)]
    if node.output[0] in graph.outputs or (readers and len(slow) == len(readers)):
        reader = f"{slow[0].name} ({slow[0].op_type})" if slow else "the output"
        yield _report(
            graph,
            target,
            node.output[0],
            place=f"{node.name or node.output[0]} -> {reader}",
            change="INT8 to float",
            severity=WARNING,
            why="what reads it has no INT8 kernel, so dequantizing it is a kernel of its own",
            fix="take the Q/DQ pair away: the layer before can write float itself",
        )


def _takes_integers(graph: LintGraph, reader: onnx.NodeProto) -> bool:
    if reader.op_type in POINTWISE | COMMUTING | JOINED | REDUCTIONS | {QUANTIZE}:
        return True
    return graph.is_integer_layer(reader)


def _report(
    graph: LintGraph,
    target: Target,
    tensor: str,
    *,
    place: str,
    change: str,
    severity: str,
    why: str,
    fix: str,
) -> Finding:
    elements = graph.elements(tensor)
    is_input = any(value.name == tensor for value in graph.inputs)
    float_bytes = _INPUT_BYTES if is_input else target.float_bytes
    return Finding(
        rule=RULE.name,
        severity=severity,
        place=place,
        what=f"{change}: {tensor}, {elements} bytes as INT8",
        why=why,
        fix=fix,
        traffic_bytes=elements * (float_bytes + 1),
    )


RULE = Rule(
    name="reformat",
    severities=(WARNING, INFO),
    targets=TENSORRT,
    summary="edges between INT8 and float that cost a kernel, with the bytes they move",
    check=check,
)
