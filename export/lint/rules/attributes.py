"""Operators that the target has, but not with these attributes, inputs or outputs."""

from collections.abc import Callable, Iterator

import onnx
from onnx import TensorProto

from export.lint.finding import ERROR, Finding
from export.lint.graph import LintGraph, attribute
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target

Answer = tuple[str, str] | None
"""What is asked for, and the fix; None where all is well."""

_RESIZE_COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "asymmetric",
    "align_corners",
)
_MAX_TOP_K = 3839
_MOST_SPATIAL_AXES = 3


def _check_resize(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    coordinates = attribute(node, "coordinate_transformation_mode", "half_pixel")
    if coordinates not in _RESIZE_COORDINATES:
        return f"coordinates {coordinates}", "export with half_pixel or align_corners"
    if attribute(node, "antialias", 0):
        return "antialiasing", "export with antialias=False"
    if attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return "a kept aspect ratio", "compute the size beforehand, with the policy stretch"
    return None


def _check_pool(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    if any(step != 1 for step in attribute(node, "dilations", [])):
        return "a dilated window", "use a window without dilation"
    if len(node.output) > 1 and node.output[1]:
        return "the indices of the maxima", _fix_indices(graph, node.output[1])
    if len(attribute(node, "kernel_shape", [])) > _MOST_SPATIAL_AXES:
        return "more than 3 spatial axes", "reshape to 2 or 3 spatial axes"
    if node.op_type == "LpPool" and attribute(node, "p", 2) not in (1, 2):
        return f"the norm p = {attribute(node, 'p', 2)}", "use p = 1 or 2"
    return None


def _fix_indices(graph: LintGraph, indices: str) -> str:
    is_read = graph.consumers(indices) or indices in graph.outputs
    if not is_read:
        return "drop the second output, which nothing reads"
    return "unpool without them: nn.Upsample or nn.ConvTranspose2d for nn.MaxUnpool2d, and train on"


def _check_conv(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    rank = graph.rank(node.input[1])
    if rank is not None and rank - 2 > _MOST_SPATIAL_AXES:
        return "more than 3 spatial axes", "reshape to 2 or 3 spatial axes"
    strides, dilations = (attribute(node, name, [1]) for name in ("strides", "dilations"))
    is_both = max(strides) > 1 and max(dilations) > 1
    if node.op_type == "ConvTranspose" and is_both:
        return "stride and dilation together", "split it: dilate first, then upsample"
    return None


def _check_top_k(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    wanted = graph.constant(node.input[1]) if len(node.input) > 1 else None
    if wanted is not None and wanted.size == 1 and int(wanted.reshape(-1)[0]) > _MAX_TOP_K:
        return f"K = {int(wanted.reshape(-1)[0])}", f"take at most {_MAX_TOP_K}"
    return None


def _check_training(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    flag = graph.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    is_training = bool(attribute(node, "training_mode", 0)) and node.op_type != "Dropout"
    if is_training or (node.op_type == "Dropout" and flag is not None and flag.any()):
        return "training mode", "export the network in evaluation mode"
    return None


def _check_layer_norm(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    if any(node.output[1:]):
        return "mean or deviation as outputs", "compute them with ReduceMean where they are needed"
    return None


def _check_scatter(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    reduction = attribute(node, "reduction", "none")
    if reduction != "none":
        fix = "make the places constants, or join the updates before they are scattered"
        return f"reduction {reduction}", fix
    return None


def _check_mod(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    if not attribute(node, "fmod", 0) and graph.element_type(node.input[0]) not in _INTEGERS:
        return "fmod = 0 on other types than int32 and int64", "set fmod to 1, or cast"
    return None


def _check_celu(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    if graph.element_type(node.input[0]) in _HALVES:
        return "16-bit floats", "compute it in float32"
    return None


def _check_range(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    if graph.element_type(node.input[0]) in _HALVES:
        return "16-bit floats", "compute it in float32"
    return None


def _check_clip(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    if graph.element_type(node.input[0]) in (TensorProto.INT8, TensorProto.UINT8):
        return "8-bit integers", "clip in float, before Q"
    return None


def _check_tensor_scatter(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    if attribute(node, "mode", "linear") != "linear" or graph.rank(node.input[0]) != IMAGE_RANK:
        return "a circular or not 4-axis cache", "use a linear cache of 4 axes"
    return None


def _check_attention(graph: LintGraph, node: onnx.NodeProto, target: Target) -> Answer:
    fix = "export with opset 22 or older, where attention is MatMul, Softmax and MatMul"
    is_cached = any(node.input[4:6]) or (not target.is_rtx and any(node.input[6:]))
    if is_cached or any(node.output[1:]):
        return "a cache or more than one output", fix
    if attribute(node, "softcap", 0.0) or attribute(node, "softmax_precision", 0):
        return "softcap or softmax_precision", fix
    if any(node.input[3:4]) and attribute(node, "is_causal", 0):
        return "a mask and is_causal", "put both into one mask"
    key, value = (graph.shape(name) for name in node.input[1:3])
    if key is not None and value is not None and key != value:
        return "keys and values of different shapes", fix
    return None


IMAGE_RANK = 4
_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
CHECKS: dict[str, Callable[[LintGraph, onnx.NodeProto, Target], Answer]] = {
    "Resize": _check_resize,
    "MaxPool": _check_pool,
    "AveragePool": _check_pool,
    "LpPool": _check_pool,
    "Conv": _check_conv,
    "ConvTranspose": _check_conv,
    "TopK": _check_top_k,
    "Dropout": _check_training,
    "BatchNormalization": _check_training,
    "LayerNormalization": _check_layer_norm,
    "ScatterND": _check_scatter,
    "ScatterElements": _check_scatter,
    "Mod": _check_mod,
    "Celu": _check_celu,
    "Range": _check_range,
    "Clip": _check_clip,
    "TensorScatter": _check_tensor_scatter,
    "Attention": _check_attention,
}


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields one finding per node."""
    for node in graph.of(*CHECKS):
        answer = CHECKS[node.op_type](graph, node, target)
        if answer is not None:
            yield Finding(
                rule=RULE.name,
                severity=ERROR,
                place=node.name or node.output[0],
                what=f"{node.op_type} with {answer[0]}",
                why=f"{target.title} has {node.op_type}, but not with that",
                fix=answer[1],
            )


RULE = Rule(
    name="unsupported-attribute",
    severities=(ERROR,),
    targets=TENSORRT,
    summary="Resize modes, dilated pools, MaxPool indices, TopK above 3839, training mode …",
    check=check,
    looks_inside=True,
)
