"""Operators in a form for which OpenVINO's CPU plugin has no fast kernel, or another layout."""

import math
from collections.abc import Callable, Iterator

import onnx

from artifacts.openvino_ranks import BROADCASTING, changes_layout
from export.lint.finding import WARNING, Finding
from export.lint.graph import LintGraph, attribute
from export.lint.rule import Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields constants per channel of a lower rank, shared slopes of PReLUs, and slow operators."""
    for node in graph.of(*BROADCASTING, *_SLOW):
        if node.op_type in _SLOW:
            is_slow, what, why = _SLOW[node.op_type]
            if not is_slow(graph, node):
                continue
        elif _has_low_constant(graph, node):
            what = "a constant per channel with fewer axes than the activation"
            why = "computes it channel by channel, and reorders the activation before and after"
        elif node.op_type == "PRelu" and _is_shared(graph, node.input[1]):
            what, why = "a slope that several PReLUs read", "does not fuse it into the layer before"
        else:
            continue
        yield Finding(
            rule=RULE.name,
            severity=WARNING,
            place=node.name or node.output[0],
            what=what,
            why=f"{target.title} {why}",
            fix="compress quantize --target openvino writes it in the fast form where it can",
        )


def _has_low_constant(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Whether a constant [C, 1, 1] meets an activation [N, C, H, W], or likewise."""
    if len(node.input) != 2:
        return False
    for name, other in (node.input, reversed(node.input)):
        shape, rank = graph.shape(name), graph.rank(other)
        if graph.is_folded(name) and shape is not None and rank is not None:
            return changes_layout(shape, rank)
    return False


def _is_shared(graph: LintGraph, slope: str) -> bool:
    """Whether several PReLUs read a constant of more than one value: a single one is fused."""
    shape = graph.shape(slope)
    is_single = shape is not None and math.prod(shape) == 1
    return graph.is_folded(slope) and not is_single and len(graph.consumers(slope)) > 1


def _is_always(graph: LintGraph, node: onnx.NodeProto) -> bool:
    del graph, node
    return True


def _norms_rows(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Whether an InstanceNormalization stands for a GroupNorm: it reads a picture's rows."""
    maker = graph.producer(node.input[0])
    is_reshaped = maker is not None and maker.op_type == "Reshape"
    return is_reshaped and graph.rank(node.input[0]) == 3


def _moves_channels_last(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Whether a Transpose is made for a norm or a Linear layer over a picture's channels."""
    return list(attribute(node, "perm", [])) == [0, 2, 3, 1] and any(
        reader.op_type == "LayerNormalization"
        or (reader.op_type == "MatMul" and graph.is_folded(reader.input[1]))
        for reader in graph.consumers(node.output[0])
    )


_GROUP_NORM = "GroupNorm over rows of channels", "reorders the picture to make rows, and back"
_SLOW: dict[str, tuple[Callable[[LintGraph, onnx.NodeProto], bool], str, str]] = {
    "HardSigmoid": (
        _is_always,
        "HardSigmoid",
        "computes it one value at a time, in a reference kernel",
    ),
    "InstanceNormalization": (_norms_rows, *_GROUP_NORM),
    "GroupNormalization": (_is_always, *_GROUP_NORM),
    "Transpose": (
        _moves_channels_last,
        "channels moved last for a norm or a Linear layer",
        "computes the Transpose, although it keeps channels last in memory anyway",
    ),
}


RULE = Rule(
    name="openvino-form",
    severities=(WARNING,),
    targets=("openvino",),
    summary="constants per channel of a lower rank, shared slopes of PReLUs, HardSigmoid, "
    "GroupNorm, channels moved last, which OpenVINO 2026.4 computes slowly",
    check=check,
)
