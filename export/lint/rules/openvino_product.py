"""OpenVINO makes a product of 1x1 Convs that it turns wrongly, and misreads odd rows of INT4."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from artifacts.openvino_pooling import JOINED_WITH_CONV
from artifacts.openvino_products import misreads_input, misreads_int4, misreads_result
from export.lint.finding import WRONG, Finding
from export.lint.graph import LintGraph
from export.lint.rule import Rule
from export.lint.rules.openvino_moves import find_reader
from export.lint.target import Target

_EIGHT_BITS = frozenset({TensorProto.INT8, TensorProto.UINT8})
_FOUR_BITS = frozenset({TensorProto.INT4, TensorProto.UINT4})


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields products of odd INT4 weights, 1x1 Convs beside Transposes and Reshapes."""
    for node in graph.of("Gemm", "MatMul"):
        weight = graph.shape(node.input[1])
        is_int4 = graph.integer_type(node.input[1]) in _FOUR_BITS
        if weight is not None and is_int4 and misreads_int4(node, weight):
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=node.name or node.output[0],
                what=f"INT4 weights of an odd number of inputs at a {node.op_type}",
                why=f"{target.title} misreads the last one of each row, and all behind it",
                fix="store this weight in INT8, or pad it with zeros to an even number",
            )
    for node in graph.of("Conv"):
        weight = graph.shape(node.input[1])
        width = graph.integer_type(node.input[1])
        if weight is None or width is None:
            continue
        beside = _find_misread(graph, node, weight, has_int4_weights=width in _FOUR_BITS)
        if beside is not None:
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{node.name or node.output[0]}, {beside.name or beside.output[0]}",
                what=f"a {beside.op_type} beside a 1x1 Conv with integer weights",
                why=f"{target.title} makes a product of the Conv, for which it moves the values "
                "otherwise, and forgets a stride or border",
                fix="quantize with compress quantize, which puts a guard between the two",
            )


def _find_misread(
    graph: LintGraph, node: onnx.NodeProto, weight: tuple[int, ...], *, has_int4_weights: bool
) -> onnx.NodeProto | None:
    """Returns the node beside a Conv that is misread; None if none is."""
    has_integer_input = graph.integer_type(node.input[0]) in _EIGHT_BITS
    reader = find_reader(graph, node.output[0], JOINED_WITH_CONV)
    rank = None if reader is None else graph.rank(reader.output[0])
    if misreads_result(
        node,
        weight,
        reader,
        rank,
        has_integer_input=has_integer_input,
        has_int4_weights=has_int4_weights,
    ):
        return reader
    maker = graph.producer(node.input[0])
    is_misread = not has_integer_input and misreads_input(node, weight, maker)
    return maker if is_misread else None


RULE = Rule(
    name="openvino-product",
    severities=(WRONG,),
    targets=("openvino",),
    summary="INT4 weights of an odd number of inputs; "
    "1x1 Convs with integer weights beside a Transpose (other than of the channels from or "
    "to the end) or, with a stride or a border, beside a Reshape: OpenVINO 2026.4 gives their "
    "values other places, misreads or refuses them",
    check=check,
)
