"""Small quantized graphs, and TensorRT-RTX to see what becomes of them."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.rtx_kernels import has_rtx, open_builder

ZERO = np.int8(0)


class Drawing:
    """Draws a graph node by node; every method returns the name of the new tensor."""

    def __init__(self, **inputs):
        self.inputs = inputs or {"x": (1, 32, 16, 16)}
        self.nodes, self.weights, self.types = [], {}, {}
        self.rng = np.random.default_rng(0)
        self._numbers = itertools.count()

    def op(self, kind, *inputs, name=None, outputs=None, **attributes):
        name = name or f"{kind.lower()}{next(self._numbers)}"
        results = outputs or [name]
        self.nodes.append(helper.make_node(kind, list(inputs), results, name, **attributes))
        return results[0]

    def constant(self, value):
        name = f"constant{next(self._numbers)}"
        self.weights[name] = np.asarray(value)
        return name

    def floats(self, *shape):
        return self.constant(self.rng.normal(0, 0.2, shape).astype(np.float32))

    def pair(self, tensor, scale=0.05, zero_point=ZERO, **attributes):
        constants = [self.constant(np.float32(scale)), self.constant(zero_point)]
        number = next(self._numbers)
        quantized = self.op("QuantizeLinear", tensor, *constants, name=f"Q{number}", **attributes)
        return self.op("DequantizeLinear", quantized, *constants, name=f"DQ{number}", **attributes)

    def weight(self, shape, axis=0, *, is_per_channel=True, zero_point=0, dtype=np.int8, below=100):
        integers = self.constant(self.rng.integers(0, below, shape).astype(dtype))
        size = (shape[axis],) if is_per_channel else ()
        scales = self.constant(np.full(size, 0.01, np.float32))
        zero_points = self.constant(np.full(size, zero_point, dtype))
        attributes = {"axis": axis} if is_per_channel else {}
        return self.op("DequantizeLinear", integers, scales, zero_points, **attributes)

    def conv(self, tensor, name=None, channels=32, *, pair=True, weight=None, **attributes):
        source = self.pair(tensor) if pair else tensor
        weight = weight or self.weight((channels, 32, 3, 3))
        return self.op("Conv", source, weight, name=name, pads=[1] * 4, **attributes)

    def model(self, *outputs, opset=19, domains=()):
        inputs = [
            helper.make_tensor_value_info(name, self.types.get(name, TensorProto.FLOAT), shape)
            for name, shape in self.inputs.items()
        ]
        results = [
            helper.make_tensor_value_info(name, self.types.get(name, TensorProto.FLOAT), None)
            for name in outputs
        ]
        weights = [numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        graph = helper.make_graph(self.nodes, "drawing", inputs, results, weights)
        sets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


@pytest.fixture
def draw():
    return Drawing


@pytest.fixture(scope="session")
def build_with_rtx():
    """Returns a function from a model to what TensorRT-RTX made of it, see `open_builder`."""
    if not has_rtx():
        pytest.skip("tensorrt_rtx is not installed")
    with open_builder() as build:
        yield build
