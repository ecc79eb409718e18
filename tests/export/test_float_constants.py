"""Biases and single numbers that other quantizers quantized become floats for TensorRT."""

import importlib.util

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from export.float_constants import write_float_constants
from export.fp16_check import run_model
from export.lint.report import lint_file
from export.precision import apply_fp16
from export.to_trt import PlanSettings, build_plans

RNG = np.random.default_rng(0)
needs_rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="TensorRT-RTX is not installed"
)


def write_network(path, kind=np.int8, number=(np.uint8, 200, 3)):
    """Writes Q/DQ → Conv with INT32 biases per channel → Mul by a quantized number."""
    node = helper.make_node
    number_type, integer, offset = number
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], "x_q"),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], "x_dq"),
        node("DequantizeLinear", ["w", "ws"], ["wd"], "w_dq", axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], "b_dq", axis=0),
        node("DequantizeLinear", ["n", "ns", "nz"], ["nd"], "n_dq"),
        node("Conv", ["xd", "wd", "bd"], ["c"], "conv"),
        node("Mul", ["c", "nd"], ["y"], "scale"),
    ]
    arrays = {
        "xs": np.float32(0.02),
        "xz": kind(0),
        "w": RNG.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8),
        "ws": RNG.uniform(0.001, 0.01, 8).astype(np.float32),
        "b": RNG.integers(-9000, 9000, 8).astype(np.int32),
        "bs": RNG.uniform(1e-5, 1e-4, 8).astype(np.float32),
        "bz": np.zeros(8, np.int32),
        "n": number_type(integer),
        "ns": np.float32(0.01),
        "nz": number_type(offset),
    }
    return save_graph(path, nodes, arrays, (1, 4, 8, 8), (1, 8, 6, 6))


def save_graph(path, nodes, arrays, x_shape, y_shape):
    """Writes a network from x to y; returns the path."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, x_shape)],
        [value("y", TensorProto.FLOAT, y_shape)],
        [numpy_helper.from_array(np.asarray(item), name) for name, item in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("number", [(np.uint8, 200, 3), (np.int8, 100, 0)])
def test_they_are_the_same_numbers_as_floats(number, tmp_path):
    model = load_onnx(write_network(tmp_path / "a.onnx", number=number))
    written = write_float_constants(model)
    assert [node.name for node in written.graph.node if node.op_type == "DequantizeLinear"] == [
        "x_dq",
        "w_dq",
    ]
    feeds = {"x": RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)}
    (wanted,), (got,) = run_model(model, [feeds]), run_model(written, [feeds])
    np.testing.assert_array_equal(got["y"], wanted["y"])


@needs_rtx
def test_such_a_file_builds_and_lint_says_so(tmp_path):
    path = write_network(tmp_path / "a.onnx")
    assert lint_file(path, target="tensorrt-rtx").is_passed
    (plan,) = build_plans(
        path, tmp_path / "a.plan", settings=PlanSettings(sm=(86,), flavour="tensorrt-rtx")
    )
    assert plan.path.exists()


def test_unsigned_activations_are_refused_and_not_cut_off_silently(tmp_path):
    path = write_network(tmp_path / "a.onnx", kind=np.uint8)
    with pytest.raises(InputError, match=r"a\.onnx: x_q, x_dq: .*UINT8.*--target tensorrt"):
        build_plans(path, tmp_path / "a.plan", settings=PlanSettings(flavour="tensorrt-rtx"))
    assert not list(tmp_path.glob("a.*plan*"))


def test_a_norm_whose_constants_were_quantized_is_typed_as_a_whole(tmp_path):
    """As onnxruntime's quantizer writes it: the scale in INT8, the bias in INT32."""
    node = helper.make_node
    arrays = {
        "xs": np.float32(0.02),
        "z": np.int8(0),
        "g": np.int8([90, 20, 127]),
        "gs": np.float32(0.01),
        "b": np.int32([300, -200, 5]),
        "bs": np.float32(1e-3),
        "mean": np.zeros(3, np.float32),
        "variance": np.ones(3, np.float32),
    }
    nodes = [
        node("QuantizeLinear", ["x", "xs", "z"], ["xq"], "x_q"),
        node("DequantizeLinear", ["xq", "xs", "z"], ["xd"], "x_dq"),
        node("DequantizeLinear", ["g", "gs"], ["gd"], "g_dq"),
        node("DequantizeLinear", ["b", "bs"], ["bd"], "b_dq"),
        node("BatchNormalization", ["xd", "gd", "bd", "mean", "variance"], ["y"], "norm"),
    ]
    path = save_graph(tmp_path / "a.onnx", nodes, arrays, (1, 3, 8, 8), (1, 3, 8, 8))
    typed = apply_fp16(write_float_constants(load_onnx(path)))
    assert min(typed.sqnr_db.values()) > 40
