"""Networks of one layer, at any channel counts, to be timed: in float or in integers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from compress.prune.analysis.trace import LayerUse

_OPSET, _IR = 17, 8
_SCALE = 0.01
"""Of every tensor in integers: what they stand for takes no time."""


def make_layer(
    layer: "LayerUse", inputs: int, outputs: int, *, is_whole: bool, is_int8: bool = False
) -> onnx.ModelProto:
    """Returns a network of one layer with random weights.

    Args:
        layer: the layer as it was used.
        inputs: channels that it reads.
        outputs: channels that it makes.
        is_whole: whether the layer loses whole groups, so that it has fewer of them.
        is_int8: whether it computes with INT8 weights on UINT8 activations, which are also what
            the network reads and writes, as between the layers of a quantized network.
    """
    node, weight, x_shape, y_shape = _describe(layer, inputs, outputs, is_whole)
    if is_int8:
        return _wrap(*_in_integers(node, weight), x_shape, y_shape, onnx.TensorProto.UINT8)
    weights = [numpy_helper.from_array(weight, "w")]
    return _wrap([node], weights, x_shape, y_shape, onnx.TensorProto.FLOAT)


def _describe(
    layer: "LayerUse", inputs: int, outputs: int, is_whole: bool
) -> tuple[onnx.NodeProto, np.ndarray, list[int], list[int] | None]:
    """Returns the layer's node, its weight, and the shapes that it reads and writes."""
    rng = np.random.default_rng(0)
    if layer.kind == "linear":
        rows = layer.input_shape[0]
        weight = rng.normal(0, 0.1, (inputs, outputs)).astype(np.float32)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        return node, weight, [rows, inputs], [rows, outputs]
    groups = layer.settings["groups"]
    if is_whole:
        groups = groups * inputs // layer.inputs.size
    is_transposed = layer.kind == "conv_transpose"
    ends = (inputs, outputs // groups) if is_transposed else (outputs, inputs // groups)
    kernel = layer.weight_shape[2:]
    weight = rng.normal(0, 0.1, (max(1, ends[0]), max(1, ends[1]), *kernel)).astype(np.float32)
    padding = layer.settings["padding"]
    node = helper.make_node(
        "ConvTranspose" if is_transposed else "Conv",
        ["x", "w"],
        ["y"],
        strides=list(layer.settings["stride"]),
        dilations=list(layer.settings["dilation"]),
        pads=[*padding, *padding],
        group=groups,
    )
    return node, weight, [layer.input_shape[0], inputs, *layer.input_shape[2:]], None


def _in_integers(
    node: onnx.NodeProto, weight: np.ndarray
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Returns the node between Q/DQ pairs, and the constants of all."""
    stored = np.clip(np.rint(weight / _SCALE), -127, 127).astype(np.int8)
    constants = {
        "w": stored,
        "scale": np.array(_SCALE, np.float32),
        "x_zero": np.array(0, np.uint8),
        "w_zero": np.array(0, np.int8),
    }
    reads = ["x_real", "w_real"]
    layer = helper.make_node(node.op_type, reads, ["y_real"])
    layer.attribute.extend(node.attribute)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "x_zero"], reads[:1]),
        helper.make_node("DequantizeLinear", ["w", "scale", "w_zero"], reads[1:]),
        layer,
        helper.make_node("QuantizeLinear", ["y_real", "scale", "x_zero"], ["y"]),
    ]
    return nodes, [numpy_helper.from_array(value, name) for name, value in constants.items()]


def _wrap(
    nodes: Sequence[onnx.NodeProto],
    constants: Sequence[onnx.TensorProto],
    x_shape: list[int],
    y_shape: list[int] | None,
    kind: int,
) -> onnx.ModelProto:
    tensor = helper.make_tensor_value_info
    x, y = tensor("x", kind, x_shape), tensor("y", kind, y_shape)
    graph = helper.make_graph(nodes, "layer", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
