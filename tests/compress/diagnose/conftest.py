"""A network with two heads whose faults are known, and calibration samples."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

OUTLIER, DEAD = 5, 2


@pytest.fixture(scope="module")
def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.random((1, 3, 12, 12), np.float32)} for _ in range(8)]


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """`stem` makes a channel 200 times the others, which `spoiled` reads; `clean` reads the rest.

    Channel `DEAD` of `first`, a layer of its own head, has weights that are all zero.
    """
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    stem = np.abs(normal(8, 3, 1, 1))
    stem[OUTLIER] *= 200
    spoiled = normal(4, 8, 1, 1)
    spoiled[:, OUTLIER] = 0.0
    first = normal(6, 3, 3, 3)
    first[DEAD] = 0.0
    weights = {"ws": stem, "wp": spoiled, "wf": first, "wl": normal(2, 6, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "ws"], ["s"], name="stem"),
        helper.make_node("Conv", ["s", "wp"], ["a"], name="spoiled"),
        helper.make_node("Conv", ["x", "wf"], ["f"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["f"], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "wl"], ["b"], name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 4, 12, 12]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, 2, 12, 12]),
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)
