"""OpenVINO takes 16-bit pairs out of a network, and what they clip with them."""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper

from export.lint.finding import WRONG, Finding
from export.lint.graph import QUANTIZE, LintGraph
from export.lint.rule import Rule
from export.lint.rules.zero_point import integer_type
from export.lint.target import Target

_WIDE = frozenset({TensorProto.INT16, TensorProto.UINT16})
_SIGNED = frozenset(
    {"Add", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "MatMul", "Mul", "Sub", "Sum"}
)
"""Operators whose results have both signs, unless the next operator cuts one off."""


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields 16-bit Q that stand for an activation: they clip one sign of what a layer computes."""
    for node in graph.of(QUANTIZE):
        kind = integer_type(graph, node)
        maker = graph.producer(node.input[0])
        if kind not in _WIDE or maker is None or maker.op_type not in _SIGNED:
            continue
        if _clips_one_sign(graph, node, kind):
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{maker.name} -> {node.name or node.output[0]}",
                what="a 16-bit pair that clips below or above 0, as an activation does",
                why=f"{target.title} takes 16-bit pairs out, and the clipping with them",
                fix="write the activation (a Relu) in front of the pair, or quantize with "
                "compress quantize",
            )


def _clips_one_sign(graph: LintGraph, node: onnx.NodeProto, kind: int) -> bool:
    """Whether 0 is the smallest or the largest number that the integers stand for."""
    zero_point = graph.constant(node.input[2]) if len(node.input) > 2 else np.zeros(1)
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(kind))
    return zero_point is not None and bool(np.isin(zero_point, (limits.min, limits.max)).all())


RULE = Rule(
    name="openvino-clipping",
    severities=(WRONG,),
    targets=("openvino",),
    summary="16-bit Q/DQ pairs that clip what an activation would; OpenVINO 2026.4 takes 16-bit "
    "pairs out",
    check=check,
)
