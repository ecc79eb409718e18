"""INT4 weights: which layers take them."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from export.lint.finding import ERROR, WARNING, Finding
from export.lint.graph import LintGraph, attribute
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target

_BLOCKS = (64, 128)


def is_int4(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Returns whether a layer's weight is INT4 behind a DQ."""
    return graph.integer_type(node.input[1]) == int(TensorProto.INT4)


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields INT4 weights that do not build, or that are unpacked to float first."""
    for node in graph.of("Conv", "ConvTranspose", "Gemm", "MatMul"):
        dequantize = graph.dequantizer(node.input[1])
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


RULE = Rule(
    name="int4-weights",
    severities=(ERROR, WARNING),
    targets=TENSORRT,
    summary="INT4 weights of convolutions, and of blocks other than 64 and 128",
    check=check,
)
