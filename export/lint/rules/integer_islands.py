"""onnxruntime computes in INT8 only between Q/DQ on both sides; a Gemm may write floats."""

from collections.abc import Iterator

import onnx

from artifacts.wording import name_some
from export.lint.finding import WARNING, Finding
from export.lint.graph import QUANTIZE, LintGraph
from export.lint.rule import Rule
from export.lint.rules.precision_flow import ACTIVATIONS
from export.lint.target import Target

_JOINED = ACTIVATIONS & {"Relu", "Clip"}


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields one finding for all layers with dequantized operands and a float result."""
    names = [
        node.name or node.output[0]
        for node in graph.of("Conv", "ConvTranspose", "Gemm", "MatMul")
        if graph.is_integer_layer(node)
        and not _is_quantized_behind(graph, node.output[0])
        and not _writes_floats(graph, node)
    ]
    if names:
        yield Finding(
            rule=RULE.name,
            severity=WARNING,
            place=name_some(names, 1),
            what=f"{len(names)} layers with Q/DQ on their operands and a float result",
            why=f"{target.title} computes a layer in INT8 only with a Q behind it; these run in "
            "float, with the Q/DQ on top",
            fix="run the file on OpenVINO, or take the Q/DQ away",
        )


def _is_quantized_behind(graph: LintGraph, tensor: str) -> bool:
    readers = graph.consumers(tensor)
    if len(readers) == 1 and readers[0].op_type in _JOINED:
        readers = graph.consumers(readers[0].output[0])
    return bool(readers) and all(reader.op_type == QUANTIZE for reader in readers)


def _writes_floats(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Returns whether it is a Gemm whose integer kernel writes its result in float.

    Its bias is int32 then. A Relu behind it would be fused to it in float, and the kernel writes
    nothing for a quantizer beside other readers.
    """
    has_integer_bias = len(node.input) < 3 or graph.dequantizer(node.input[2]) is not None
    readers = graph.consumers(node.output[0])
    is_fused = len(readers) == 1 and readers[0].op_type in _JOINED
    is_rounded = any(reader.op_type == QUANTIZE for reader in readers)
    return node.op_type == "Gemm" and has_integer_bias and not is_fused and not is_rounded


RULE = Rule(
    name="integer-island",
    severities=(WARNING,),
    targets=("onnxruntime",),
    summary="layers without a Q behind them, which onnxruntime computes in float",
    check=check,
)
