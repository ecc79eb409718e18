from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 3, 8, 10)


def make_conv_model(batch: int | str = SHAPE[0], height: int | str = SHAPE[2]) -> onnx.ModelProto:
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "weight"], ["features"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["zone"]),
        helper.make_node("GlobalAveragePool", ["features"], ["area"]),
    ]
    shape = [batch, SHAPE[1], height, SHAPE[3]]
    graph = helper.make_graph(
        nodes,
        "conv",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info("zone", TensorProto.FLOAT, [batch, 4, height, 10]),
            helper.make_tensor_value_info("area", TensorProto.FLOAT, [batch, 4, 1, 1]),
        ],
        [numpy_helper.from_array(weight, "weight")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    path = tmp_path / "conv.onnx"
    onnx.save(make_conv_model(), path)
    return path


@pytest.fixture
def dynamic_path(tmp_path: Path) -> Path:
    path = tmp_path / "dynamic.onnx"
    onnx.save(make_conv_model("batch", "height"), path)
    return path


@pytest.fixture
def free_batch_path(tmp_path: Path) -> Path:
    path = tmp_path / "free_batch.onnx"
    onnx.save(make_conv_model("batch"), path)
    return path


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
