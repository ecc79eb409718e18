"""A Clip without a bound behind an unknown operator crashed OpenVINO, and Python with it."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("openvino")

READ = "import openvino, sys; openvino.Core().read_model(sys.argv[1])"
READ_SAFELY = """
import openvino, sys
from pathlib import Path
from artifacts.openvino_clips import read_openvino, read_openvino_model
import onnx
core, path = openvino.Core(), Path(sys.argv[1])
for read, source in ((read_openvino, path), (read_openvino_model, onnx.load(path))):
    try:
        read(core, source)
    except RuntimeError as error:
        assert "Foo" in str(error), error
    else:
        print("read")
"""


@pytest.fixture
def make_clipped(tmp_path):
    """Writes operator → Clip with these inputs → y, and returns the file."""

    def make(operator, bounds, domain=""):
        nodes = [
            helper.make_node(operator, ["x"], ["a"], operator, domain=domain),
            helper.make_node("Clip", ["a", *bounds], ["y"], "clip"),
        ]
        graph = helper.make_graph(
            nodes,
            "clipped",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
            [numpy_helper.from_array(np.float32(0.5), "bound")],
        )
        sets = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
        path = tmp_path / "clipped.onnx"
        onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=9), path)
        return path

    return make


def run_child(code, path):
    return subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("bounds", [["bound"], ["", "bound"], []], ids=["min", "max", "none"])
def test_the_unknown_operator_is_named(bounds, make_clipped):
    child = run_child(READ_SAFELY, make_clipped("Foo", bounds, domain="my"))
    assert (child.returncode, child.stdout) == (0, ""), child.stderr


@pytest.mark.parametrize("bounds", [["bound"], ["bound", "bound"]])
def test_what_openvino_knows_is_read(bounds, make_clipped):
    child = run_child(READ_SAFELY, make_clipped("Relu", bounds))
    assert (child.returncode, child.stdout) == (0, "read\nread\n"), child.stderr


def test_openvino_crashes_there_by_itself(make_clipped):
    """The negative control; once it fails, OpenVINO is mended and reads such networks itself."""
    assert run_child(READ, make_clipped("Foo", ["bound"], domain="my")).returncode < 0
