"""Models made of local functions, as onnxscript writes them, are opened in a process of its own.

Other libraries import `onnx.inliner`, so that a test beside them would not notice if it were
missing.
"""

import subprocess
import sys

import onnx
import pytest
from onnx import TensorProto, helper

OPEN = """
import sys
from pathlib import Path
from artifacts.onnx_file import load_onnx
print(*(node.op_type for node in load_onnx(Path(sys.argv[1])).graph.node))
"""


@pytest.fixture
def functional_model(tmp_path):
    swish = helper.make_function(
        "my",
        "Swish",
        ["X"],
        ["Y"],
        [helper.make_node("Sigmoid", ["X"], ["S"]), helper.make_node("Mul", ["X", "S"], ["Y"])],
        [helper.make_opsetid("", 17)],
    )
    graph = helper.make_graph(
        [helper.make_node("Swish", ["x"], ["y"], "swish", domain="my")],
        "functional",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    path = tmp_path / "functional.onnx"
    onnx.save(helper.make_model(graph, functions=[swish], opset_imports=sets, ir_version=9), path)
    return path


def test_local_functions_are_inlined(functional_model):
    child = subprocess.run(
        [sys.executable, "-c", OPEN, str(functional_model)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == ["Sigmoid", "Mul"]
