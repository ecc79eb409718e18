"""Operators that the target's reader does not have."""

from collections.abc import Iterator

import onnx

from export.lint.finding import ERROR, Finding
from export.lint.graph import LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target

_PLUGINS = frozenset(
    {"EfficientNMS_TRT", "BatchedNMSDynamic_TRT", "ROIAlign_TRT", "PyramidROIAlign_TRT"}
)
"""Plugins that classic TensorRT ships."""

_CUT = "framefit export onnx MODEL --output TENSOR ends a network there"
_INSTEAD = {
    "NonMaxSuppression": f"suppress outside, behind the raw boxes and scores: {_CUT}",
    "NonZero": "keep a mask of fixed size instead of a list of positions; where it chooses boxes, "
    f"choose outside: {_CUT}",
    "RoiAlign": f"do what follows the regions elsewhere ({_CUT}); classic TensorRT has it",
    "DeformConv": "compose it of GridSample and Conv; classic TensorRT has it",
    "DynamicQuantizeLinear": "quantize with calibration data: compress quantize",
    "QLinearConv": "write Q/DQ pairs around Conv: compress quantize on the float network",
    "QLinearMatMul": "write Q/DQ pairs around MatMul: compress quantize on the float network",
    "ConvInteger": "write Q/DQ pairs around Conv: compress quantize on the float network",
    "MatMulInteger": "write Q/DQ pairs around MatMul: compress quantize on the float network",
    "Unique": "move it behind the network",
    "Swish": "export with opset 23 or older, where it is Sigmoid and Mul",
}


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields one finding per node that the target does not have."""
    for node in graph.nodes:
        reason = _find_reason(node, target)
        if reason:
            yield Finding(
                rule=RULE.name,
                severity=ERROR,
                place=node.name or node.output[0],
                what=f"operator {node.op_type}",
                why=reason,
                fix=suggest_instead(node.op_type),
            )


def suggest_instead(operator: str) -> str:
    """Returns what to do about an operator that a target does not have."""
    return _INSTEAD.get(operator, "replace it by operators that the target has")


def _find_reason(node: onnx.NodeProto, target: Target) -> str:
    is_standard = onnx.defs.has(node.op_type, "")
    if node.op_type in target.refused_operators:
        return f"{target.title} does not have it"
    if node.domain in ("", "ai.onnx") or is_standard:
        return ""
    if node.op_type in _PLUGINS and not target.is_rtx:
        return ""
    return f"it is no standard operator, so {target.title} looks for a plugin of that name"


RULE = Rule(
    name="unsupported-operator",
    severities=(ERROR,),
    targets=TENSORRT,
    summary="operators and custom domains that the parser does not have",
    check=check,
    looks_inside=True,
)
