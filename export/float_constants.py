"""Quantized biases and single numbers become the floats that they stand for.

Other quantizers write biases as INT32 behind a DQ, for runtimes that add integers; TensorRT
dequantizes INT8 and less, and adds a float bias inside the layer. They also quantize the constants
of an Add or a Mul, of which TensorRT does not build those that are one number.
"""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from artifacts.graph_reading import attribute, read_constants
from artifacts.shape_inference import infer_shapes

_DEQUANTIZE = "DequantizeLinear"
_READ = frozenset({TensorProto.INT32, TensorProto.INT8, TensorProto.UINT8})


def write_float_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network without the DQ of constants in INT32 and of constants of one number.

    Args:
        model: its main graph is looked at; returned itself where nothing is to be done.
    """
    constants = read_constants(model.graph)
    of_norms = {
        name
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[1:]
    }
    found = {
        node.output[0]: values
        for node in model.graph.node
        if (values := _dequantize(node, constants, of_norms)) is not None
    }
    if not found:
        return model
    written = onnx.ModelProto()
    written.CopyFrom(model)
    kept = [node for node in written.graph.node if node.output[0] not in found]
    del written.graph.node[:]
    written.graph.node.extend(kept)
    written.graph.initializer.extend(
        numpy_helper.from_array(values, name) for name, values in found.items()
    )
    return infer_shapes(written)


def _dequantize(
    node: onnx.NodeProto, constants: dict[str, onnx.TensorProto], of_norms: set[str]
) -> NDArray[np.floating] | None:
    """Returns what a DQ of such constants computes; None for every other node.

    A norm's scale and bias have one type, so both become floats.
    """
    if node.op_type != _DEQUANTIZE or not {*filter(None, node.input)} <= constants.keys():
        return None
    kind = constants[node.input[0]].data_type
    integers, scale, *zero_point = (
        numpy_helper.to_array(constants[name]) for name in node.input if name
    )
    is_taken = kind == TensorProto.INT32 or integers.size == 1 or node.output[0] in of_norms
    if kind not in _READ or not is_taken or scale.ndim > 1:
        return None
    whole = integers.astype(np.int64)
    places = [1] * whole.ndim
    if scale.ndim and whole.ndim:
        places[attribute(node, "axis", 1) if whole.ndim > 1 else 0] = -1
    offset = zero_point[0].astype(np.int64).reshape(places) if zero_point else 0
    return np.asarray((whole - offset).astype(scale.dtype) * scale.reshape(places))
