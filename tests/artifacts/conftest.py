"""Small models and files for the artifacts' tests."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

MakeModel = Callable[..., onnx.ModelProto]


def _make_model(
    nodes: Sequence[onnx.NodeProto] | None = None,
    *,
    weights: dict[str, Any] | None = None,
    shape: Sequence[int | str] = (1, 3, 8, 8),
    opset: int = 17,
    ir_version: int = 8,
    output: Sequence[int | str] | None = None,
) -> onnx.ModelProto:
    """Builds a model with the input `x` and the output `y`; a Conv and Relu by default."""
    if nodes is None:
        generator = np.random.default_rng(0)
        weights = {"w": generator.normal(size=(4, 3, 3, 3)).astype(np.float32)}
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["y"]),
        ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, output)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


@pytest.fixture
def make_model() -> MakeModel:
    return _make_model


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(_make_model(), path)
    return path


class Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


@pytest.fixture
def make_canary(tmp_path: Path) -> Callable[[], Canary]:
    """Makes an object that writes the file `canary` when it is unpickled."""
    return lambda: Canary(tmp_path / "canary")
