"""What `compress qat` says of operators that it cannot train."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("torch")


def test_an_operator_that_cannot_be_trained_is_one_short_line(run, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Det", ["r"], ["y"], name="corner"),
    ]
    inputs, outputs = [value("x", 1, [1, 3, 4, 4])], [value("y", 1, [1, 3])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "n.onnx")
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).random((4, 3, 4, 4), np.float32))
    result = run(
        *("compress", "qat", tmp_path / "n.onnx", "--teacher", tmp_path / "n.onnx"),
        *("--data", tmp_path / "d.npz"),
    )
    assert result.code == 2
    assert "Det (node 'corner')" in result.err
    assert "--prefer quality" in result.err
    assert len(result.err) < 600
