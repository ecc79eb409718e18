"""INT4 weights: which layers take them."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from export.lint.finding import ERROR, WARNING, Finding
from export.lint.graph import LintGraph, attribute, is_blocked
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target

_BLOCKS = (64, 128)
_MATRIX_AXES = 2


def is_int4(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Returns whether a layer's weight is INT4 behind a DQ."""
    return graph.integer_type(node.input[1]) == int(TensorProto.INT4)


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields INT4 weights that do not build, or that are unpacked to float first."""
    for node in graph.of("Conv", "ConvTranspose", "Gemm", "MatMul"):
        dequantize = graph.dequantizer(node.input[1])
        if dequantize is not None and is_blocked(dequantize):
            yield from _check_blocks(graph, target, dequantize, node)
        if dequantize is None or not is_int4(graph, node):
            continue
        place = f"{dequantize.name or dequantize.output[0]} -> {node.name or node.output[0]}"
        is_conv = node.op_type in ("Conv", "ConvTranspose")
        block = int(attribute(dequantize, "block_size", 0))
        if is_conv and graph.dequantizer(node.input[0]) is not None:
            yield Finding(
                rule=RULE.name,
                severity=ERROR,
                place=place,
                what=f"an INT4 weight and an INT8 activation at a {node.op_type}",
                why=f"{target.title} computes both operands of a convolution in one type",
                fix="keep that activation in float (INT4 is for weights only), or use INT8 weights",
            )
        elif is_conv:
            yield Finding(
                rule=RULE.name,
                severity=WARNING,
                place=place,
                what=f"an INT4 weight at a {node.op_type}",
                why="INT4 saves memory for matrix products only; a convolution unpacks it first",
                fix="use INT8 weights and activations",
            )
        elif block and block not in _BLOCKS:
            yield Finding(
                rule=RULE.name,
                severity=WARNING,
                place=place,
                what=f"INT4 blocks of {block}",
                why="the documented block sizes are 64 and 128",
                fix="quantize in blocks of 128 or 64",
            )


def _check_blocks(
    graph: LintGraph, target: Target, dequantize: onnx.NodeProto, node: onnx.NodeProto
) -> Iterator[Finding]:
    """Yields weights in blocks, of integers of any size, that do not build."""
    if node.op_type in ("Conv", "ConvTranspose"):
        why = f"{target.title} has blocks for products of matrices only"
    elif target.is_rtx and graph.dequantizer(node.input[0]) is not None and _is_turned(graph, node):
        why = f"{target.title} builds it for two operands of two axes only, neither turned"
    else:
        return
    yield Finding(
        rule=RULE.name,
        severity=ERROR,
        place=f"{dequantize.name or dequantize.output[0]} -> {node.name or node.output[0]}",
        what=f"a weight with a scale per block at a {node.op_type}",
        why=why,
        fix="build it with framefit export trt, which writes it otherwise; or one scale a channel",
    )


def _is_turned(graph: LintGraph, node: onnx.NodeProto) -> bool:
    return graph.rank(node.input[0]) != _MATRIX_AXES or bool(attribute(node, "transB", 0))


RULE = Rule(
    name="int4-weights",
    severities=(ERROR, WARNING),
    targets=TENSORRT,
    summary="INT4 weights of convolutions, blocks other than 64 and 128, blocks that do not build",
    check=check,
)
