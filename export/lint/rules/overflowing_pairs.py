"""Products that overflow on processors without VNNI."""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto

from artifacts.paired_products import PAIR_SUM, LayerProducts
from artifacts.processor import overflows_on_int8, read_flags
from export.lint.finding import INFO, WRONG, Finding
from export.lint.graph import LAYERS, LintGraph
from export.lint.rule import Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields a finding for all layers whose weights may overflow, and one for all products."""
    counts = {
        node.name or node.output[0]: count
        for node in graph.of(*LAYERS)
        if (count := _count_overflowing(graph, node, target))
    }
    if counts:
        yield _report(
            sorted(counts, key=counts.__getitem__, reverse=True),
            f"{sum(counts.values())} pairs of INT8 weights of one sign that are more than "
            f"{PAIR_SUM} together",
            "quantize with --weights int8-pairs for such processors",
            target,
        )
    products = [
        node.name or node.output[0]
        for node in graph.of("MatMul")
        if target.name == "openvino" and _multiplies_activations(graph, node)
    ]
    if products:
        yield _report(
            products,
            f"INT8 products of two activations in {len(products)} nodes",
            "keep them in float for such processors, as quantize --weights int8-pairs does",
            target,
        )


def _report(places: list[str], what: str, fix: str, target: Target) -> Finding:
    is_wrong_here = overflows_on_int8(read_flags())
    first, *others = places
    return Finding(
        rule=RULE.name,
        severity=WRONG if is_wrong_here else INFO,
        place=f"{first} and {len(others)} more" if others else first,
        what=what,
        why=f"{target.title} adds products in pairs, in 16 bits, where they may overflow, on x86 "
        f"processors without VNNI{', such as this one' if is_wrong_here else ''}",
        fix=fix,
    )


def _multiplies_activations(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Whether both operands are computed; one with an unsigned second is computed in float."""
    makers = [graph.dequantizer(name) for name in node.input[:2]]
    if not all(maker is not None and not graph.is_weight(maker) for maker in makers):
        return False
    second = makers[1]
    return second is not None and graph.element_type(second.input[0]) == TensorProto.INT8


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
    summary="INT8 weights, and on OpenVINO activations, whose products overflow on x86 processors "
    "without VNNI, which add them in pairs, in 16 bits; wrong on such a processor, info elsewhere",
    check=check,
)
