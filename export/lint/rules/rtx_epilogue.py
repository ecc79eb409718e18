"""TensorRT-RTX: what follows an INT8 layer with scales per channel."""

from collections.abc import Iterator

from artifacts.wording import name_some
from export.lint.finding import INFO, Finding
from export.lint.graph import LintGraph
from export.lint.rule import Rule
from export.lint.target import Target

_FLOAT32_BYTES = 4


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields one finding for all INT8 convolutions with per-channel weight scales."""
    names, elements = [], 0
    for node in graph.of("Conv", "ConvTranspose"):
        dequantize = graph.producer(node.input[1])
        if dequantize is None or not graph.is_integer_layer(node):
            continue
        scales = graph.shape(dequantize.input[1]) if len(dequantize.input) > 1 else None
        if scales is not None and scales and scales[0] > 1:
            names.append(node.name or node.output[0])
            elements += graph.elements(node.output[0])
    if names:
        yield Finding(
            rule=RULE.name,
            severity=INFO,
            place=name_some(names, 1),
            what=f"{len(names)} INT8 convolutions with a scale per channel",
            why=f"{target.title} writes their sums as float32 and scales, adds the bias, activates "
            "and quantizes in a second kernel; with one scale per weight it scales, adds and "
            "activates inside and writes float16",
            fix="for speed on it, one scale per weight where the accuracy allows",
            traffic_bytes=2 * (_FLOAT32_BYTES - target.float_bytes) * elements,
        )


RULE = Rule(
    name="rtx-epilogue",
    severities=(INFO,),
    targets=("tensorrt-rtx",),
    summary="INT8 convolutions whose scale, bias and activation become a kernel of their own",
    check=check,
)
