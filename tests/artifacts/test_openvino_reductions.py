"""Which constants behind a reduction OpenVINO takes along the wrong axis."""

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.openvino_reductions import find_reduced
from artifacts.paired_products import PAIR_SUM

SEEN = (1, 6, 8, 12, 16)
"""Batch, cameras, channels, and the cells of a grid seen from above."""


def make_network(constant_shape):
    """The sum over cameras, times a constant, a Q/DQ pair and a Conv of integers."""
    rng = np.random.default_rng(0)
    initializers = {
        "axes": np.array([1]),
        "factors": rng.uniform(0.5, 4, constant_shape).astype(np.float32),
        "scale": np.float32(0.05),
        "zero_point": np.int8(0),
        "weights": rng.integers(-PAIR_SUM // 2, PAIR_SUM // 2, (4, SEEN[2], 1, 1), np.int8),
    }
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], name="sum", keepdims=0),
        helper.make_node("Mul", ["sum", "factors"], ["scaled"]),
        helper.make_node("QuantizeLinear", ["scaled", "scale", "zero_point"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero_point"], ["dq"]),
        helper.make_node("DequantizeLinear", ["weights", "scale", "zero_point"], ["w"]),
        helper.make_node("Conv", ["dq", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "seen_from_above",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SEEN)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 12, 16))],
        [numpy_helper.from_array(value, name) for name, value in initializers.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9), initializers


@pytest.mark.parametrize(
    ("constant_shape", "is_misread"),
    [
        ((1, 1, 12, 16), False),
        ((8, 12, 16), False),
        ((16,), False),
        ((1, 12, 1), False),
        ((1, 8, 1, 1), True),
        ((8, 1, 1), True),
    ],
)
def test_openvino_misreads_one_value_per_channel_alone(constant_shape, is_misread):
    """Where OpenVINO is right, the layers behind need not stay in float."""
    model, initializers = make_network(constant_shape)
    shapes = {"x": SEEN, "sum": (1, 8, 12, 16), "scaled": (1, 8, 12, 16)}
    found = find_reduced(model.graph.node, shapes.get, initializers.get)
    assert found["scaled"].is_misread == is_misread
    noise_db = _measure_noise_db(model)
    assert noise_db < -40 if not is_misread else noise_db > -20


def _measure_noise_db(model: onnx.ModelProto) -> float:
    sample = np.random.default_rng(1).standard_normal(SEEN).astype(np.float32)
    content = model.SerializeToString()
    (wanted,) = onnxruntime.InferenceSession(content).run(None, {"x": sample})
    core = openvino.Core()
    network = core.compile_model(
        core.read_model(content), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    noise = network([sample])[0] - wanted
    return 10 * np.log10(np.square(noise).sum() / np.square(wanted).sum())
