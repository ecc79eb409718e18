"""Sessions of one walk share an arena; results outlive their session, what is free goes back."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compress.quantize.executor import Subgraph
from compress.quantize.graph import Graph
from compress.quantize.shared_memory import give_back_memory

MIB = 1 << 20
SIZE = 256 * MIB // 4


def resident_mib() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("this system does not tell how much memory a process takes")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024 // MIB


@pytest.fixture
def step() -> Subgraph:
    """y = x + x, of 256 MiB."""
    nodes = [helper.make_node("Add", ["x", "x"], ["y"], "add")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    example = {"x": np.zeros(SIZE, np.float32)}
    return Subgraph(
        Graph(onnx.shape_inference.infer_shapes(model)), nodes, {}, example, ["y"], is_step=True
    )


def test_free_memory_is_kept_for_the_next_step_and_given_back(step):
    feeds = {"x": np.ones(SIZE, np.float32)}
    give_back_memory()
    before = resident_mib()
    assert step.run(feeds)["y"][-1] == 2
    assert resident_mib() > before + 200
    give_back_memory()
    assert resident_mib() < before + 100


def test_results_outlive_their_session_and_what_is_given_back(step):
    results = [step.run({"x": np.full(SIZE, value, np.float32)})["y"] for value in (1, 2)]
    del step
    give_back_memory()
    assert [np.unique(result).tolist() for result in results] == [[2.0], [4.0]]
