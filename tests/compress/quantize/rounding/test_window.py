"""A layer as rows @ columns gives what onnxruntime computes."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.rounding.round_layer import grouped_rows
from compress.quantize.rounding.window import Window

CONVOLUTIONS = [
    {"group": 1, "pads": [1, 1, 1, 1]},
    {"group": 2, "pads": [0, 2, 1, 0], "strides": [2, 1]},
    {"group": 4, "pads": [2, 2, 2, 2], "dilations": [2, 2]},
    {"group": 1, "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"group": 1, "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"group": 1, "auto_pad": "VALID", "strides": [3, 3]},
]
TRANSPOSED = [
    {"group": 1, "strides": [2, 2]},
    {"group": 1, "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    {"group": 2, "strides": [3, 2], "dilations": [2, 1], "pads": [0, 1, 2, 1]},
    {"group": 1, "auto_pad": "SAME_UPPER", "strides": [2, 2]},
]


def compare(node, weight, values, got, axis):
    window = Window.of(node, weight.shape, values.shape, got.shape)
    outputs = grouped_rows(weight, axis, window.groups) @ window.columns(values)
    assert outputs.shape[2] == window.count(values.shape, got.shape)
    flat = outputs.reshape(-1, outputs.shape[2])
    wanted = np.moveaxis(got, 1, 0).reshape(got.shape[1], -1)
    np.testing.assert_allclose(flat, wanted, rtol=1e-4, atol=1e-4)
    chosen = np.asarray([0, 3, 5])
    np.testing.assert_array_equal(
        window.columns(values, chosen), window.columns(values)[:, :, chosen]
    )


@pytest.mark.parametrize("attributes", CONVOLUTIONS)
def test_a_convolution(attributes, make_model, run_model):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 4 // attributes["group"], 3, 2)).astype(np.float32)
    values = rng.standard_normal((2, 4, 9, 8)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    model = make_model([node], {"w": weight}, {"x": values.shape}, ["y"])
    compare(node, weight, values, run_model(model, {"x": values})["y"], axis=0)


@pytest.mark.parametrize("attributes", TRANSPOSED)
def test_a_transposed_convolution(attributes, make_model, run_model):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 6 // attributes["group"], 3, 3)).astype(np.float32)
    values = rng.standard_normal((2, 4, 5, 4)).astype(np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    model = make_model([node], {"w": weight}, {"x": values.shape}, ["y"])
    compare(node, weight, values, run_model(model, {"x": values})["y"], axis=1)


def test_one_spatial_axis(make_model, run_model):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((6, 4, 3)).astype(np.float32)
    values = rng.standard_normal((1, 4, 11)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1], strides=[2])
    model = make_model([node], {"w": weight}, {"x": values.shape}, ["y"])
    compare(node, weight, values, run_model(model, {"x": values})["y"], axis=0)


def test_a_product():
    rng = np.random.default_rng(0)
    weight, values = rng.standard_normal((5, 3)), rng.standard_normal((2, 7, 5)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    window = Window.of(node, weight.shape, values.shape, (2, 7, 3))
    columns = window.columns(values)
    assert columns.shape == (1, 5, 14) == (1, 5, window.count(values.shape, (2, 7, 3)))
    outputs = weight.T @ columns[0]
    np.testing.assert_allclose(outputs.T.reshape(2, 7, 3), values @ weight, atol=1e-5)


def test_the_share_of_weights_that_meets_an_input():
    padded = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 0, 1, 0])
    window = Window.of(padded, (6, 4, 3, 1), (1, 4, 5, 7), (1, 6, 5, 7))
    assert window.covered((1, 4, 5, 7)) == pytest.approx(13 / 15)
    spread = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    window = Window.of(spread, (4, 6, 2, 2), (1, 4, 5, 7), (1, 6, 10, 14))
    assert window.covered((1, 4, 5, 7)) == pytest.approx(1 / 4)
    assert Window().covered((8, 4)) == 1
