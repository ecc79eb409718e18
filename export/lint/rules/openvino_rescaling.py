"""OpenVINO moves the rescaling of integer layers to where it reads it wrongly."""

from collections.abc import Iterator

import numpy as np
import onnx

from artifacts.openvino_rescaling import (
    ACTIVATIONS,
    CONVOLUTIONS,
    PASSED,
    misreads_last_channels,
)
from export.lint.finding import WARNING, WRONG, Finding
from export.lint.graph import LAYERS, MOVING, LintGraph
from export.lint.rule import Rule
from export.lint.rules.openvino_moves import find_maker, has_bias
from export.lint.target import Target

_MOVED_PAST = PASSED | MOVING | ACTIVATIONS | {"MaxPool"}
"""On the way from a layer to a Gather."""


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields what stands behind an integer layer, with no quantizer in between."""
    why = f"{target.title} moves the rescaling of the integer layer"
    for node in graph.nodes:
        layer = _find_misread_layer(graph, node)
        if layer is not None:
            yield Finding(
                rule=RULE.name,
                severity=WARNING,
                place=f"{layer.name} -> {node.name or node.output[0]}",
                what=f"{_describe(node)} behind an INT8 {layer.op_type}",
                why=f"{why} past it with the axes it had, which may change values or be refused",
                fix="quantize with compress quantize, which writes another form",
            )
        factor = _find_negative_factor(graph, node)
        if factor is not None:
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{node.name} -> {factor.name or factor.output[0]}",
                what=f"an INT8 {node.op_type} without a bias, an activation, and a negative factor",
                why=f"{why} past the activation and computes ReLU(-x) for -ReLU(x)",
                fix="give the layer a bias that is not 0; compress quantize does",
            )


def _describe(node: onnx.NodeProto) -> str:
    if node.op_type == "Gather":
        return "a Gather whose indices are not one row"
    return f"{node.op_type} of the last axis"


def _find_misread_layer(graph: LintGraph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Returns the integer layer whose channels a node misreads, if it does."""
    if node.op_type == "Gather":
        layer = _find_layer(graph, node.input[0], _MOVED_PAST)
        if layer is None or graph.rank(node.input[1]) == 1:
            return None
        is_right = layer.op_type in CONVOLUTIONS and (
            node.input[0] in layer.output or has_bias(graph, layer)
        )
        return None if is_right else layer
    shapes = [graph.shape(names[0]) if names else None for names in (node.input, node.output)]
    if not misreads_last_channels(node, *shapes):
        return None
    layer = _find_layer(graph, node.input[0], PASSED)
    return layer if layer is not None and layer.op_type == "MatMul" else None


def _find_layer(graph: LintGraph, tensor: str, passed: frozenset[str]) -> onnx.NodeProto | None:
    """Returns the integer layer that makes a tensor, beyond operators that may stand between."""
    node = find_maker(graph, tensor, passed)
    is_layer = node is not None and node.op_type in LAYERS and graph.is_integer_layer(node)
    return node if is_layer else None


def _find_negative_factor(graph: LintGraph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Returns what makes an activation negative behind a convolution without a bias."""
    if node.op_type not in CONVOLUTIONS or not graph.is_integer_layer(node):
        return None
    if has_bias(graph, node):
        return None
    misread = ACTIVATIONS if node.op_type == "ConvTranspose" else ACTIVATIONS - {"PRelu"}
    return next(
        (
            factor
            for activation in graph.consumers(node.output[0])
            if activation.op_type in misread
            for factor in graph.consumers(activation.output[0])
            if _is_negative(graph, factor, activation.output[0])
        ),
        None,
    )


def _is_negative(graph: LintGraph, node: onnx.NodeProto, tensor: str) -> bool:
    """Whether a node multiplies a tensor by a negative constant."""
    if node.op_type == "Neg":
        return True
    others = [graph.constant(name) for name in node.input if name != tensor]
    if node.op_type == "Sub":
        return node.input[1] == tensor and others[0] is not None
    if node.op_type in ("Mul", "Div") and len(others) == 1 and others[0] is not None:
        return bool(np.any(others[0] < 0))
    return False


RULE = Rule(
    name="openvino-rescaling",
    severities=(WRONG, WARNING),
    targets=("openvino",),
    summary="behind an INT8 layer and no Q: a Gather by a number or a table of indices; pooling, "
    "resizing or an Unsqueeze of a MatMul's last axis; a negative factor behind the activation of "
    "a convolution without a bias: OpenVINO 2026.4 miscomputes or refuses them",
    check=check,
)
