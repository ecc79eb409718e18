"""Operands that have to be known when the plan is built."""

from collections.abc import Iterator

from onnx import TensorProto

from export.lint.finding import ERROR, Finding
from export.lint.graph import DEQUANTIZE, QUANTIZE, LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target

_REDUCTIONS = tuple(
    f"Reduce{name}"
    for name in (
        "L1",
        "L2",
        "LogSum",
        "LogSumExp",
        "Max",
        "Mean",
        "Min",
        "Prod",
        "Sum",
        "SumSquare",
    )
)
FOLDED: dict[str, dict[int, str]] = {
    "Squeeze": {1: "axes"},
    "Unsqueeze": {1: "axes"},
    "CumSum": {1: "axis"},
    "OneHot": {1: "depth"},
    "Dropout": {2: "training mode"},
    "STFT": {1: "frame step", 2: "window"},
    **{name: {1: "axes"} for name in _REDUCTIONS},
    QUANTIZE: {2: "zero point"},
    DEQUANTIZE: {2: "zero point"},
}
"""Operands that have to follow from constants alone: name by position, by operator."""

FIXED: dict[str, dict[int, str]] = {
    "Reshape": {1: "shape"},
    "Expand": {1: "shape"},
    "Tile": {1: "repeats"},
    "ConstantOfShape": {0: "shape"},
    "Resize": {2: "scales", 3: "sizes"},
    "Upsample": {1: "scales"},
    "Pad": {1: "pads", 3: "axes"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"},
    "Split": {1: "sizes"},
    "TopK": {1: "K"},
    "Range": {0: "start", 1: "limit", 2: "step"},
    "BlackmanWindow": {0: "size"},
    "HammingWindow": {0: "size"},
    "HannWindow": {0: "size"},
}
"""Operands that may follow from shapes too, since those are fixed."""


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields nodes whose axes, shape or limits come from data."""
    for node in graph.of(*FOLDED, *FIXED):
        is_strict = node.op_type in FOLDED
        operands = FOLDED.get(node.op_type) or FIXED[node.op_type]
        for position, name in operands.items():
            tensor = node.input[position] if len(node.input) > position else ""
            is_known = graph.is_folded(tensor) if is_strict else graph.is_fixed(tensor)
            if not tensor or is_known or graph.element_type(tensor) in _FLOAT8:
                continue
            yield Finding(
                rule=RULE.name,
                severity=ERROR,
                place=node.name or node.output[0],
                what=f"{node.op_type} with the {name} '{tensor}', which is computed",
                why=f"{target.title} has to know it when the plan is built",
                fix="export with a constant there: fixed input shapes, sizes that no data decides",
            )


_FLOAT8 = frozenset(
    TensorProto.DataType.Value(name) for name in ("FLOAT8E4M3FN", "FLOAT4E2M1", "FLOAT8E8M0")
)


RULE = Rule(
    name="computed-operand",
    severities=(ERROR,),
    targets=TENSORRT,
    summary="axes, shapes and zero points that depend on data",
    check=check,
    looks_inside=True,
)
