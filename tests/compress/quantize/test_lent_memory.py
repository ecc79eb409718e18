"""Large outputs are computed in memory of numpy's, and are those that onnxruntime computes."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from compress.quantize import lent_memory
from compress.quantize.lent_memory import LentOutputs, share_memory


@pytest.fixture
def session() -> ort.InferenceSession:
    """y = relu(x) s, of float32, the places of its positive values, and their sum."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Mul", ["r", "s"], ["y"]),
        helper.make_node("NonZero", ["y"], ["places"]),
        helper.make_node("ReduceSum", ["y"], ["sum"], keepdims=0),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 5, 6]),
        helper.make_tensor_value_info("s", TensorProto.FLOAT, []),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("places", "y", "sum")]
    opsets = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("least_bytes", [1, 1 << 22])
def test_outputs_are_those_of_a_plain_run(least_bytes, session, monkeypatch):
    monkeypatch.setattr(lent_memory, "LEAST_BYTES", least_bytes)
    network = LentOutputs(session)
    turned = np.random.default_rng(0).normal(size=(6, 5, 4)).astype(np.float32).T
    names, results = ["places", "y", "sum"], []
    for sign in (1, -1):
        feeds = {"x": sign * turned, "s": np.asarray(2.0, np.float32)}
        found = network.run(names, feeds)
        assert list(found) == names
        for name, wanted in zip(names, session.run(names, feeds), strict=True):
            assert np.array_equal(found[name], wanted)
        results.append(found["y"])
    is_lent = [result.flags.owndata for result in results]
    assert least_bytes > 1 or all(is_lent)
    assert not np.shares_memory(*results)


def test_sessions_share_one_arena() -> None:
    assert share_memory()
