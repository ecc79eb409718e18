"""OpenVINO miscomputes some convolutions, in integers and in bfloat16."""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from artifacts.openvino_kernels import (
    BFLOAT16_BYTES,
    INTEGER_BYTES,
    miscomputes_conv,
    miscomputes_signed,
    miscomputes_transposed,
)
from export.lint.finding import WARNING, WRONG, Finding
from export.lint.graph import LintGraph
from export.lint.rule import Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields convolutions whose kernel, stride, groups and channels lead to a wrong kernel."""
    for node in graph.of("Conv"):
        yield from _check_conv(graph, node, target)
        if _reads_signed_volume(graph, node):
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=node.name or node.output[0],
                what="an INT8 Conv over three axes in groups, of signed integers",
                why=f"{target.title} computes something else, seen on a processor without VNNI",
                fix="quantize what it reads to UINT8, or keep it in float; compress quantize does",
            )
    for node in graph.of("ConvTranspose"):
        weight = graph.shape(node.input[1])
        if weight and graph.is_integer_layer(node) and miscomputes_transposed(node, weight):
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=node.name or node.output[0],
                what=f"an INT8 ConvTranspose of {weight[0]} channels, no multiple of 4",
                why=f"with more than one operator behind it, {target.title} computes something "
                "else on processors with AMX",
                fix="keep it in float; compress quantize does",
            )


def _reads_signed_volume(graph: LintGraph, node: onnx.NodeProto) -> bool:
    data, maker = graph.shape(node.input[0]), graph.dequantizer(node.input[0])
    if not data or maker is None or not graph.is_integer_layer(node):
        return False
    is_signed = graph.element_type(maker.input[0]) == TensorProto.INT8
    return is_signed and miscomputes_signed(node, data)


def _check_conv(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Iterator[Finding]:
    names = (node.input[0], node.input[1], node.output[0])
    data, weight, result = (graph.shape(name) for name in names)
    if not (data and weight and result):
        return
    is_integer = graph.is_integer_layer(node)
    value_bytes = INTEGER_BYTES if is_integer else BFLOAT16_BYTES
    if not miscomputes_conv(node, data, weight, result, value_bytes):
        return
    kernel = f"kernel {weight[-1]} wide of {weight[1]} channels"
    order = "reads its weights in another order than it stored them, on processors with AMX"
    yield Finding(
        rule=RULE.name,
        severity=WRONG if is_integer else WARNING,
        place=node.name or node.output[0],
        what=f"an INT8 {kernel}" if is_integer else f"a {kernel}, in bfloat16",
        why=f"{target.title} {order}"
        if is_integer
        else f"{target.title} computes in bfloat16 by default, and {order}",
        fix="keep it in float; compress quantize does"
        if is_integer
        else "compile the network with INFERENCE_PRECISION_HINT f32, as framefit does",
    )


RULE = Rule(
    name="openvino-kernel",
    severities=(WRONG, WARNING),
    targets=("openvino",),
    summary="INT8 Convs of few channels with wide kernels, or with strides that divide them, "
    "results one column wide, 1x1 kernels in groups, and ConvTransposes of channels that are no "
    "multiple of 4, which OpenVINO 2026.4 miscomputes with AMX; signed INT8 Convs over three axes "
    "in groups; float Convs that it miscomputes in bfloat16",
    check=check,
)
