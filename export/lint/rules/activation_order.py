"""Q/DQ pairs between a layer and its activation."""

from collections.abc import Iterator

from export.lint.finding import WARNING, Finding
from export.lint.graph import DEQUANTIZE, QUANTIZE, LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.rules.precision_flow import ACTIVATIONS
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields pairs whose input is a quantized layer's result and whose reader is an activation."""
    for quantize in graph.of(QUANTIZE):
        layer = graph.producer(quantize.input[0])
        if layer is None or not graph.is_integer_layer(layer):
            continue
        for dequantize in graph.consumers(quantize.output[0]):
            if dequantize.op_type != DEQUANTIZE:
                continue
            for reader in graph.consumers(dequantize.output[0]):
                if reader.op_type in ACTIVATIONS:
                    yield Finding(
                        rule=RULE.name,
                        severity=WARNING,
                        place=f"{layer.name} -> {reader.name}",
                        what=f"a Q/DQ pair between {layer.op_type} and {reader.op_type}",
                        why=f"{target.title} cannot join the two, and the result is rounded twice",
                        fix="quantize behind the activation: move the pair there",
                    )


RULE = Rule(
    name="activation-order",
    severities=(WARNING,),
    targets=TENSORRT,
    summary="Q/DQ between a layer and its activation, which parts the two",
    check=check,
)
