"""Weights whose products overflow on processors without VNNI."""

from collections.abc import Iterator

import numpy as np
import onnx

from artifacts.paired_products import PAIR_SUM, LayerProducts
from artifacts.processor import overflows_on_int8, read_flags
from export.lint.finding import INFO, WRONG, Finding
from export.lint.graph import LAYERS, LintGraph
from export.lint.rule import Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields one finding for all layers with pairs of weights whose products may overflow."""
    counts = {
        node.name or node.output[0]: count
        for node in graph.of(*sorted(LAYERS))
        if (count := _count_overflowing(graph, node, target))
    }
    if not counts:
        return
    is_wrong_here = overflows_on_int8(read_flags())
    first, *others = sorted(counts, key=counts.__getitem__, reverse=True)
    yield Finding(
        rule=RULE.name,
        severity=WRONG if is_wrong_here else INFO,
        place=f"{first} and {len(others)} more" if others else first,
        what=f"{sum(counts.values())} pairs of INT8 weights of one sign that are more than "
        f"{PAIR_SUM} together",
        why=f"{target.title} adds their products in 16 bits, where they may overflow, on x86 "
        f"processors without VNNI{', such as this one' if is_wrong_here else ''}",
        fix="quantize with --weights int8-pairs for such processors",
    )


def _count_overflowing(graph: LintGraph, node: onnx.NodeProto, target: Target) -> int:
    dequantize = graph.producer(node.input[1])
    if not graph.is_integer_layer(node) or dequantize is None:
        return 0
    weight = graph.constant(dequantize.input[0])
    if weight is None or weight.dtype != np.int8:
        return 0
    products = LayerProducts.of(node, weight.shape, target.name)
    return products.count_overflowing(weight) if products is not None else 0


RULE = Rule(
    name="overflowing-pairs",
    severities=(WRONG, INFO),
    targets=("openvino", "onnxruntime"),
    summary="INT8 weights whose products overflow on x86 processors without VNNI, which add them "
    "in pairs, in 16 bits; wrong on such a processor, info elsewhere",
    check=check,
)
