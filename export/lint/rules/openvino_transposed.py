"""OpenVINO computes some ConvTransposes in float, whatever their Q/DQ pairs say."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from artifacts.openvino_transposed import find_float_trait
from export.lint.finding import WARNING, Finding
from export.lint.graph import LintGraph
from export.lint.rule import Rule
from export.lint.rules.zero_point import find_zero_point, integer_type
from export.lint.target import Target

_KEEP_FLOAT = "keep it in float; compress quantize --target openvino does"
_QUANTIZE = "give it INT8 of its own without a zero point; compress quantize --target openvino does"


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields ConvTransposes between Q/DQ pairs that have no kernel in integers."""
    for node in graph.of("ConvTranspose"):
        shape = graph.shape(node.input[1])
        dequantize = graph.dequantizer(node.input[0])
        if shape is None or dequantize is None or not graph.is_integer_layer(node):
            continue
        trait = find_float_trait(node, shape[2:])
        if trait:
            what, how = trait, "in float, or in integers even more slowly"
        elif find_zero_point(graph, dequantize) is not None:
            what, how = "a zero point", "in float"
        elif _is_shared_and_signed(graph, dequantize):
            what, how = "an input that a Conv reads too", "in float on processors without AMX"
        else:
            continue
        yield Finding(
            rule=RULE.name,
            severity=WARNING,
            place=node.name or node.output[0],
            what=f"an INT8 ConvTranspose with {what}",
            why=f"{target.title} computes it {how}",
            fix=_KEEP_FLOAT if trait else _QUANTIZE,
        )


def _is_shared_and_signed(graph: LintGraph, dequantize: onnx.NodeProto) -> bool:
    """Whether a Conv reads the same signed integers, which it takes as unsigned without AMX."""
    readers = graph.consumers(dequantize.output[0])
    is_signed = integer_type(graph, dequantize) == TensorProto.INT8
    return is_signed and any(reader.op_type == "Conv" for reader in readers)


RULE = Rule(
    name="openvino-transposed",
    severities=(WARNING,),
    targets=("openvino",),
    summary="INT8 ConvTransposes with groups, strides of more than 3 or of more than the kernel, "
    "dilation, a zero point, or (without AMX) signed integers that a Conv reads too: OpenVINO "
    "2026.4 computes them in float",
    check=check,
)
