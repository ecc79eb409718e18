"""Files that onnxruntime does not run are bad input, told in one line, and no fault of framefit."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from compress.model_runner import open_runner
from engines.runtimes import open_session

FEEDS = {"x": np.ones((1, 8), np.float32)}


def make_network(scales, block=4):
    """Returns a product with INT8 weights in blocks, as Model Optimizer writes them."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["w", "s"], ["d"], "dq", axis=0, block_size=block),
            helper.make_node("MatMul", ["x", "d"], ["y"], "product"),
        ],
        "blocks",
        [value("x", TensorProto.FLOAT, (1, 8))],
        [value("y", TensorProto.FLOAT, (1, 3))],
        [
            numpy_helper.from_array(np.ones((8, 3), np.int8), "w"),
            numpy_helper.from_array(np.ones((scales, 3), np.float32), "s"),
        ],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_a_network_that_fails_when_it_runs_is_bad_input_at_a_named_node():
    assert open_runner(make_network(2))(FEEDS)["y"].shape == (1, 3)
    run = open_runner(make_network(1))
    with pytest.raises(InputError, match=r"DequantizeLinear 'dq': x_scale must be .*block_size"):
        run(FEEDS)


def test_a_network_that_does_not_open_is_bad_input():
    network = make_network(2)
    network.graph.node[1].domain = "com.microsoft"
    network.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(InputError, match="onnxruntime cannot run the network"):
        open_runner(network)


def test_an_engine_that_fails_when_it_runs_says_so_alike(tmp_path, capfd):
    path = tmp_path / "blocks.onnx"
    onnx.save(make_network(1), path)
    with (
        open_session(path, "onnxruntime") as session,
        pytest.raises(InputError, match=r"DequantizeLinear 'dq': x_scale must be"),
    ):
        session.run(FEEDS)
    assert not capfd.readouterr().err
