"""OpenVINO misreads a row of masks behind an integer product of queries and keys."""

from collections.abc import Iterator

import onnx

from artifacts.openvino_attention import COMMUTING, TURNED
from export.lint.finding import WRONG, Finding
from export.lint.graph import LintGraph
from export.lint.rule import Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields the nodes between such a product and its Softmax that have the row second."""
    for product in graph.of("MatMul"):
        if graph.is_integer_layer(product) and not any(map(graph.is_fixed, product.input)):
            for node, scores in _walk_to_softmax(graph, product):
                if _has_row_second(graph, node, scores):
                    yield Finding(
                        rule=RULE.name,
                        severity=WRONG,
                        place=f"{product.name or product.output[0]} -> {node.name or scores}",
                        what=f"{node.op_type} of scores and one row for all queries",
                        why=f"{target.title} reads the row wrongly behind an integer product",
                        fix="make the row the first operand (compress quantize does), or keep "
                        "the product in float",
                    )


def _walk_to_softmax(
    graph: LintGraph, product: onnx.NodeProto
) -> Iterator[tuple[onnx.NodeProto, str]]:
    """Yields what changes scores, each with the scores that it reads; nothing without a Softmax."""
    found: list[tuple[onnx.NodeProto, str]] = []
    scores = product.output[0]
    while len(readers := graph.consumers(scores)) == 1:
        (node,) = readers
        if node.op_type == "Softmax":
            yield from found
            return
        if node.op_type not in COMMUTING | TURNED:
            return
        found.append((node, scores))
        scores = node.output[0]


def _has_row_second(graph: LintGraph, node: onnx.NodeProto, scores: str) -> bool:
    if len(node.input) != 2 or node.input[0] != scores:
        return False
    row = node.input[1]
    if node.op_type in TURNED and not graph.is_folded(row):
        return False
    maker = graph.producer(row)
    while maker is not None and maker.op_type == "Expand":
        row = maker.input[0]
        maker = graph.producer(row)
    shape = graph.shape(row)
    return shape is not None and graph.elements(row) > 1 and graph.elements(row) == shape[-1]


RULE = Rule(
    name="openvino-attention",
    severities=(WRONG,),
    targets=("openvino",),
    summary="a mask with one row for all queries as the second operand behind an integer "
    "product, which OpenVINO 2026.4 misreads",
    check=check,
)
