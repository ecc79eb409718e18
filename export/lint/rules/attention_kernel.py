"""The Attention operator, which TensorRT computes with a fused kernel or, in one form, without.

TensorRT takes no Attention apart where it has no fused kernel for it. TensorRT-RTX 1.7.1 has one
for 16-bit floats and heads of 9 to 256 values, with any mask. What it joins by itself needs none:
operands of three axes, or of four that a Reshape and a Transpose make of three, without a mask and
with as many heads of keys as of queries. With lengths of padded keys (`nonpad_kv_seqlen`, opset 24)
a single query has a kernel of its own, for every type, at least 4 heads of queries and sizes that
are multiples of 8; more queries need the fused one.
"""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from export.lint.finding import ERROR, WARNING, Finding
from export.lint.graph import DEQUANTIZE, LintGraph, attribute
from export.lint.rule import Rule
from export.lint.target import Target

SIZES = range(9, 257)
"""Of the heads that the fused kernel computes."""
_SIZES_OF_ONE_QUERY = range(8, 257, 8)
_LEAST_HEADS_OF_ONE_QUERY = 4
_LENGTHS = 6
"""The input with the lengths of padded keys."""
_HEADS_SECOND = [0, 2, 1, 3]
_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
FOUR_AXES = 4
_FUSED_ONLY = "a mask, Q/DQ, other heads of keys than of queries, or 4 axes not made of 3"


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields each Attention that no kernel computes as it is typed."""
    for node in graph.of("Attention"):
        size = _head_size(graph, node)
        if size is None or _is_taken_apart(graph, node):
            continue
        if any(node.input[_LENGTHS:]) and _has_one_query(graph, node):
            yield from _check_one_query(graph, node, size)
            continue
        is_fusable = size in SIZES
        if is_fusable and graph.element_type(node.input[0]) in _HALVES:
            continue
        yield _of_another_type(node) if is_fusable else _without_kernel(node, size)


def _check_one_query(graph: LintGraph, node: onnx.NodeProto, size: int) -> Iterator[Finding]:
    heads = _heads(graph, node, 0)
    if size not in _SIZES_OF_ONE_QUERY or heads < _LEAST_HEADS_OF_ONE_QUERY:
        sizes, least = _SIZES_OF_ONE_QUERY, _LEAST_HEADS_OF_ONE_QUERY
        yield Finding(
            rule=RULE.name,
            severity=ERROR,
            place=node.name or node.output[0],
            what=f"Attention of one query in {heads} heads of {size} values, with padded keys",
            why=f"TensorRT-RTX has a kernel for {least} heads or more, of a multiple of "
            f"{sizes.step} values up to {sizes[-1]}",
            fix="give the operator a mask instead of nonpad_kv_seqlen",
        )


def _of_another_type(node: onnx.NodeProto) -> Finding:
    return Finding(
        rule=RULE.name,
        severity=WARNING,
        place=node.name or node.output[0],
        what=f"Attention in float32 with {_FUSED_ONLY}",
        why="TensorRT-RTX has a kernel for it in FP16 only; the file as it is does not build",
        fix="build it with framefit export trt, which types it FP16, and not with --no-fp16",
    )


def _without_kernel(node: onnx.NodeProto, size: int) -> Finding:
    return Finding(
        rule=RULE.name,
        severity=ERROR,
        place=node.name or node.output[0],
        what=f"Attention of heads of {size} values with {_FUSED_ONLY}",
        why=f"TensorRT-RTX has kernels for heads of {SIZES[0]} to {SIZES[-1]} values",
        fix="export with opset 22 or older, where attention is MatMul, Softmax and MatMul",
    )


def _head_size(graph: LintGraph, node: onnx.NodeProto) -> int | None:
    """Returns how many values a query has in a head; None where that is not known."""
    shape = graph.shape(node.input[0])
    if shape is None:
        return None
    return shape[-1] if len(shape) == FOUR_AXES else shape[-1] // _heads(graph, node, 0)


def _heads(graph: LintGraph, node: onnx.NodeProto, operand: int) -> int:
    """Returns into how many heads the queries (operand 0) or the keys (operand 1) are split."""
    shape = graph.shape(node.input[operand]) or ()
    if len(shape) == FOUR_AXES:
        return shape[1]
    return int(attribute(node, ("q_num_heads", "kv_num_heads")[operand], 1))


def _has_one_query(graph: LintGraph, node: onnx.NodeProto) -> bool:
    shape = graph.shape(node.input[0])
    return shape is not None and shape[-2] == 1


def _is_taken_apart(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Returns whether TensorRT computes the products and the Softmax with kernels of their own."""
    is_masked = (
        any(node.input[3:4]) or any(node.input[_LENGTHS:]) or bool(attribute(node, "is_causal", 0))
    )
    if is_masked or _heads(graph, node, 0) != _heads(graph, node, 1):
        return False
    return all(_is_split_into_heads(graph, name) for name in node.input[:3])


def _is_split_into_heads(graph: LintGraph, tensor: str) -> bool:
    producer = graph.producer(tensor)
    if graph.rank(tensor) != FOUR_AXES:
        return producer is None or producer.op_type != DEQUANTIZE
    if producer is None or producer.op_type != "Transpose":
        return False
    before = graph.producer(producer.input[0])
    is_reshaped = before is not None and before.op_type == "Reshape"
    return is_reshaped and list(attribute(producer, "perm", [])) == _HEADS_SECOND


RULE = Rule(
    name="attention-kernel",
    severities=(ERROR, WARNING),
    targets=("tensorrt-rtx",),
    summary="the Attention operator where TensorRT-RTX has no kernel for it, or one in FP16 only",
    check=check,
    looks_inside=True,
)
