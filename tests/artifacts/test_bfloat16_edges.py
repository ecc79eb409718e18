"""Inputs and outputs in bfloat16, which numpy and the CPU's runtimes do not have."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from compress.model_runner import open_runner
from compress.quantize.api import quantize_model
from engines.runtimes import open_session
from export.precision import apply_fp16

SHAPE = [1, 3, 8, 8]
HALF, FLOAT = TensorProto.BFLOAT16, TensorProto.FLOAT


@pytest.fixture
def path(tmp_path):
    """A Conv, whose result is an output that a branch reads too, all in bfloat16."""
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(ml_dtypes.bfloat16)
    then = helper.make_graph(
        [helper.make_node("Neg", ["y"], ["picked"])],
        "then",
        [],
        [helper.make_tensor_value_info("picked", HALF, [1, 4, 6, 6])],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["y"], ["kept"])],
        "else",
        [],
        [helper.make_tensor_value_info("kept", HALF, [1, 4, 6, 6])],
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], "conv"),
        helper.make_node("If", ["yes"], ["z"], "if", then_branch=then, else_branch=other),
    ]
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info("x", HALF, SHAPE)],
        [helper.make_tensor_value_info(name, HALF, [1, 4, 6, 6]) for name in "yz"],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array(True), "yes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, tmp_path / "half.onnx")
    return tmp_path / "half.onnx"


def test_they_become_float32_and_the_network_computes_the_same(path, caplog):
    model = load_onnx(path)
    values = (*model.graph.input, *model.graph.output)
    assert {item.type.tensor_type.elem_type for item in values} == {FLOAT}
    assert [item.name for item in values] == ["x", "y", "z"]
    assert "half.onnx: bfloat16 is no type of numpy; x, y, z become float32" in caplog.text
    image = np.random.default_rng(1).random(SHAPE, np.float32)
    found = open_runner(model)({"x": image})
    weight = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(image[0], (3, 3), axis=(1, 2))
    wanted = np.einsum("chwij,ocij->ohw", windows, weight)
    np.testing.assert_allclose(found["y"][0], wanted, rtol=0.02, atol=0.1)
    np.testing.assert_array_equal(found["z"], -found["y"])


def test_they_are_quantized_and_typed_for_tensorrt(path):
    model = load_onnx(path)
    rng = np.random.default_rng(2)
    result = quantize_model(model, [{"x": rng.random(SHAPE, np.float32)} for _ in range(4)])
    assert result.outputs_db["y"] > 25
    assert min(apply_fp16(model).sqnr_db.values()) > 40


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_a_runtime_refuses_the_file_itself_in_one_line(path, runtime):
    with pytest.raises(InputError, match=r"bfloat16|NOT_IMPLEMENTED") as caught:
        open_session(path, runtime)
    assert "\n" not in str(caught.value)
