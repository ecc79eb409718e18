"""Weights with a scale per block are written as TensorRT-RTX builds them, and compute the same."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.rtx_kernels import has_rtx, open_builder
from export.blocked_weights import write_blocked_weights
from export.fp16_check import run_model
from export.lint import lint_model
from export.parser_forms import write_for_parser

BLOCK = 16


@pytest.fixture(scope="module")
def build():
    if not has_rtx():
        pytest.skip("tensorrt_rtx is not installed")
    with open_builder() as builder:
        yield builder


def make_layer(kind, shape, weight_shape, axis, *, dtype, is_paired=True, **attributes):
    """Returns x -> a layer -> y whose weight has a scale for each block along an axis."""
    rng = np.random.default_rng(0)
    scales = list(weight_shape)
    scales[axis] //= BLOCK
    top = 7 if dtype == TensorProto.INT4 else 99
    integers, zeros = rng.integers(-top, top, weight_shape), np.zeros(scales, np.int64)
    constants = [
        helper.make_tensor("w", dtype, weight_shape, integers.ravel()),
        helper.make_tensor("w_zero", dtype, scales, zeros.ravel()),
        numpy_helper.from_array(rng.uniform(0.01, 0.02, scales).astype(np.float32), "w_scale"),
        numpy_helper.from_array(np.float32(0.02), "x_scale"),
        numpy_helper.from_array(np.int8(0), "x_zero"),
    ]
    operands = ["w", "w_scale", "w_zero"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "x_scale", "x_zero"], ["dq"], "dq"),
        helper.make_node("DequantizeLinear", operands, ["v"], "dw", axis=axis, block_size=BLOCK),
        helper.make_node(kind, ["dq" if is_paired else "x", "v"], ["y"], "layer", **attributes),
    ]
    graph = helper.make_graph(
        nodes if is_paired else nodes[2:],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants if is_paired else constants[:3],
    )
    opsets = [helper.make_opsetid("", 21)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=10)
    )


LAYERS = {
    "product of tokens": ("MatMul", (1, 12, 32), (32, 24), 0, {}),
    "product of maps": ("MatMul", (1, 3, 12, 32), (32, 24), 0, {}),
    "Gemm": ("Gemm", (12, 32), (24, 32), 1, {"transB": 1}),
    "Conv": ("Conv", (1, 32, 8, 8), (24, 32, 3, 3), 1, {}),
    "grouped Conv": ("Conv", (1, 32, 8, 8), (24, 16, 1, 1), 1, {"group": 2}),
    "ConvTranspose": ("ConvTranspose", (1, 32, 8, 8), (32, 8, 2, 2), 0, {"strides": [2, 2]}),
}


@pytest.mark.parametrize("is_paired", [True, False])
@pytest.mark.parametrize("dtype", [TensorProto.INT4, TensorProto.INT8])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_with_blocks_builds_and_computes_the_same(name, dtype, is_paired, build):
    kind, shape, weight_shape, axis, attributes = LAYERS[name]
    model = make_layer(
        kind, shape, weight_shape, axis, dtype=dtype, is_paired=is_paired, **attributes
    )
    assert build(model)["is_built"] == lint_model(model, target="tensorrt-rtx").is_buildable
    written = write_for_parser(model)
    assert lint_model(written, target="tensorrt-rtx").is_buildable
    assert build(written)["is_built"]
    sample = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    (wanted,), (got,) = run_model(model, [sample]), run_model(written, [sample])
    np.testing.assert_allclose(got["y"], wanted["y"], rtol=1e-5, atol=1e-5)


def test_what_tensorrt_takes_stays_as_it_is():
    product = ("MatMul", (12, 32), (32, 24), 0)
    for is_paired in (True, False):
        model = make_layer(*product, dtype=TensorProto.INT4, is_paired=is_paired)
        assert list(write_blocked_weights(model).graph.node) == list(model.graph.node)
