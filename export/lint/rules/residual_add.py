"""Residual additions: one branch arrives as INT8, the other stays inside its layer."""

from collections.abc import Iterator

import onnx

from export.lint.finding import WARNING, Finding
from export.lint.graph import LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields additions whose Q/DQ keep them out of the layer computed before them."""
    for node in graph.of("Add"):
        if len(node.input) != 2 or any(graph.is_fixed(name) for name in node.input):
            continue
        if graph.shape(node.input[0]) != graph.shape(node.input[1]):
            continue
        direct = [graph.producer(name) for name in node.input]
        behind = [_maker_of_pair(graph, name) for name in node.input]
        is_direct = [_is_layer(graph, maker) for maker in direct]
        is_behind = [_is_layer(graph, maker) for maker in behind]
        if not any(is_direct) and any(is_behind):
            yield _report(graph, target, node, is_behind.index(True), "the layer's own result")
        elif any(is_direct) and not any(behind) and _is_read_as_integers(graph, node, is_direct):
            yield _report_float(graph, target, node, is_direct)


def _is_layer(graph: LintGraph, maker: onnx.NodeProto | None) -> bool:
    return maker is not None and graph.is_integer_layer(maker)


def _maker_of_pair(graph: LintGraph, tensor: str) -> onnx.NodeProto | None:
    """Returns what makes the tensor before a Q/DQ pair; None where there is no pair."""
    dequantize = graph.producer(tensor)
    if dequantize is None or dequantize.op_type != "DequantizeLinear":
        return None
    quantize = graph.producer(dequantize.input[0])
    if quantize is None or quantize.op_type != "QuantizeLinear":
        return dequantize
    return graph.producer(quantize.input[0]) or quantize


def _is_read_as_integers(graph: LintGraph, node: onnx.NodeProto, direct: list[bool]) -> bool:
    """Returns whether the other branch is quantized for its other readers anyway."""
    other = node.input[direct.index(True) ^ 1]
    return any(reader.op_type == "QuantizeLinear" for reader in graph.consumers(other))


def _report(
    graph: LintGraph, target: Target, node: onnx.NodeProto, position: int, what: str
) -> Finding:
    return Finding(
        rule=RULE.name,
        severity=WARNING,
        place=f"{node.input[position]} -> {node.name or node.output[0]}",
        what=f"Q/DQ on {what} before an Add",
        why=f"{target.title} adds inside the layer only where that branch comes without Q/DQ",
        fix="take that pair away, and put Q/DQ on the other branch only",
        traffic_bytes=graph.elements(node.output[0]) * 2,
    )


def _report_float(
    graph: LintGraph, target: Target, node: onnx.NodeProto, direct: list[bool]
) -> Finding:
    other = node.input[direct.index(True) ^ 1]
    return Finding(
        rule=RULE.name,
        severity=WARNING,
        place=f"{other} -> {node.name or node.output[0]}",
        what="an Add that reads a tensor in float which others read as INT8",
        why="the tensor is written twice, in both precisions, and the Add reads the larger one",
        fix="let the Add read the tensor's DQ",
        traffic_bytes=graph.elements(other) * (2 * target.float_bytes - 1),
    )


RULE = Rule(
    name="residual-add",
    severities=(WARNING,),
    targets=TENSORRT,
    summary="an Add with Q/DQ on the layer's own branch, or on none",
    check=check,
)
