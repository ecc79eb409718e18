"""Q/DQ pairs in onnxruntime's own domain are read as the standard ones."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.onnx_file import load_onnx
from export.fp16_check import run_model
from export.lint.report import lint_file

KINDS = {
    "UINT8": TensorProto.UINT8,
    "INT8": TensorProto.INT8,
    "UINT16": TensorProto.UINT16,
    "INT16": TensorProto.INT16,
}


def write_network(path, kind, zero_point):
    """Writes x → Q → DQ → Relu with pairs of com.microsoft, opset 17."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q", domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "dq", domain="com.microsoft"),
        helper.make_node("Relu", ["d"], ["y"], "relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "pairs",
        [value("x", TensorProto.FLOAT, (1, 6))],
        [value("y", TensorProto.FLOAT, (1, 6))],
        [
            numpy_helper.from_array(np.float32(0.25), "s"),
            helper.make_tensor("z", kind, (), [zero_point]),
        ],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_pairs_of_onnxruntime_are_standard_pairs_that_compute_the_same(kind, tmp_path):
    path = write_network(tmp_path / "pairs.onnx", kind, 5)
    model = load_onnx(path)
    assert {node.domain for node in model.graph.node} == {""}
    assert {item.name for item in model.graph.value_info} >= {"q", "d"}
    feeds = {"x": np.linspace(-2, 2, 6, dtype=np.float32).reshape(1, 6)}
    (wanted,), (got,) = (run_model(item, [feeds]) for item in (onnx.load(path), model))
    np.testing.assert_array_equal(got["y"], wanted["y"])


@pytest.mark.parametrize(("kind", "severity"), [("INT8", "error"), ("INT16", "error")])
def test_lint_judges_them_as_pairs(kind, severity, tmp_path):
    report = lint_file(write_network(tmp_path / "a.onnx", KINDS[kind], 5), target="tensorrt-rtx")
    found = {item.place for item in report.findings if item.severity == severity}
    assert {"q", "dq"} <= found
