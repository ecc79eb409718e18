"""Small ONNX networks whose costs can be counted by hand."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx import helper as h


def build(nodes, inputs, outputs, weights=(), opset=17):
    """Returns a model with inferred shapes; inputs and outputs are {name: (shape, type)}."""
    graph = h.make_graph(
        [h.make_node(kind, ins, outs, name=name, **more) for name, kind, ins, outs, more in nodes],
        "g",
        [h.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in inputs.items()],
        [h.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


FLOAT = TensorProto.FLOAT


def two_heads():
    """A trunk of one convolution, a head of one convolution each on the outputs `a` and `b`."""
    rng = np.random.default_rng(0)
    nodes = [
        ("stem", "Conv", ["x", "w"], ["s"], {"pads": [1, 1, 1, 1]}),
        ("relu", "Relu", ["s"], ["r"], {}),
        ("head_a", "Conv", ["r", "wa"], ["a"], {}),
        ("head_b", "Conv", ["r", "wb"], ["b0"], {}),
        ("sigmoid", "Sigmoid", ["b0"], ["b"], {}),
    ]
    weights = [
        ("w", rng.normal(size=(16, 3, 3, 3)).astype(np.float32)),
        ("wa", rng.normal(size=(8, 16, 1, 1)).astype(np.float32)),
        ("wb", rng.normal(size=(4, 16, 1, 1)).astype(np.float32)),
    ]
    return build(
        nodes,
        {"x": ((1, 3, 32, 32), FLOAT)},
        {"a": ((1, 8, 32, 32), FLOAT), "b": ((1, 4, 32, 32), FLOAT)},
        weights,
    )


def quantized_conv():
    """Q/DQ around one convolution with int8 weights, and Q/DQ on its result."""
    weights = [
        ("wq", np.ones((16, 8, 3, 3), np.int8)),
        ("scale", np.float32(0.1)),
        ("zero", np.int8(0)),
    ]
    nodes = [
        ("q", "QuantizeLinear", ["x", "scale", "zero"], ["xq"], {}),
        ("dq", "DequantizeLinear", ["xq", "scale", "zero"], ["xd"], {}),
        ("dqw", "DequantizeLinear", ["wq", "scale", "zero"], ["wd"], {}),
        ("conv", "Conv", ["xd", "wd"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("q2", "QuantizeLinear", ["c", "scale", "zero"], ["cq"], {}),
        ("dq2", "DequantizeLinear", ["cq", "scale", "zero"], ["cd"], {}),
        ("pool", "MaxPool", ["cd"], ["y"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ]
    return build(nodes, {"x": ((1, 8, 16, 16), FLOAT)}, {"y": ((1, 16, 8, 8), FLOAT)}, weights)
