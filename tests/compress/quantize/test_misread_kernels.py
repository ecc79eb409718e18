"""Convolutions that OpenVINO's kernels get wrong in integers stay in float."""

import numpy as np
import pytest
from onnx import helper

from artifacts.processor import overflows_on_int8, read_flags
from compress.quantize.api import quantize_model
from compress.quantize.placement import tensorrt, vector_layers
from compress.quantize.settings import QuantizeSettings

WRONG = [
    *((32, 4, 4, 32), (48, 4, 4, 24), (16, 8, 8, 32), (32, 8, 4, 32), (16, 8, 1, 37)),
    *((64, 5, 2, 5, 13), (20, 7, 3, 13, 31, 2), (192, 1, 1, 8, 8, 1, 2), (400, 1, 1, 5, 1, 1, 4)),
]
RIGHT = [
    *((64, 4, 4, 32), (16, 4, 4, 32), (32, 2, 2, 32), (32, 4, 4, 37), (20, 8, 1, 37)),
    *((64, 5, 1, 5, 13), (64, 5, 2, 5, 11), (128, 1, 1, 8, 8, 1, 2), (192, 1, 1, 2, 2, 1, 2)),
]
"""Channels, kernel, stride, width, and where they are others, height, dilation and groups."""


@pytest.fixture
def make_strided(make_model):
    """A Conv of 1x1, and one of the case behind it."""

    def make(channels, kernel, stride, width, height=0, dilation=1, group=1):
        rng = np.random.default_rng(0)
        shapes = {"w1": (channels, 3, 1, 1), "w2": (32, channels // group, kernel, kernel)}
        weights = {
            name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
        }
        others = {"dilations": [dilation] * 2, "group": group}
        nodes = [
            helper.make_node("Conv", ["x", "w1"], ["h"], "first"),
            helper.make_node("Conv", ["h", "w2"], ["y"], "strided", strides=[stride] * 2, **others),
        ]
        return make_model(nodes, weights, {"x": (1, 3, height or width, width)}, ["y"])

    return make


@pytest.fixture
def quantize(exact_weights):
    """Returns a function that quantizes a network, and gives the sample that it read."""

    def run(model, target="openvino"):
        rng = np.random.default_rng(1)
        shape = [item.dim_value for item in model.graph.input[0].type.tensor_type.shape.dim]
        samples = [{"x": rng.standard_normal(shape).astype(np.float32)}]
        settings = QuantizeSettings(target=target, weights=exact_weights, equalization=False)
        return quantize_model(model, samples, settings), samples[0]

    return run


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
@pytest.mark.parametrize("case", WRONG)
def test_a_miscomputed_kernel_stays_in_float(case, target, make_strided, quantize, agreement_db):
    result, feeds = quantize(make_strided(*case), target)
    (declined,) = result.declined
    assert declined.node == "strided"
    assert "OpenVINO miscomputes" in declined.reason
    assert agreement_db(result.model, feeds) > 50


@pytest.mark.parametrize("case", RIGHT)
def test_other_kernels_compute_in_integers(case, make_strided, quantize, agreement_db):
    result, feeds = quantize(make_strided(*case))
    assert not result.declined
    assert agreement_db(result.model, feeds) > 50


@pytest.mark.usefixtures("amx")
@pytest.mark.parametrize("case", WRONG)
def test_openvino_miscomputes_the_kernel(case, make_strided, quantize, agreement_db, monkeypatch):
    """The negative control; once it fails, OpenVINO is mended and the rule can go."""
    monkeypatch.setattr(tensorrt, "find_misread_kernels", lambda graph: {})
    result, feeds = quantize(make_strided(*case))
    assert agreement_db(result.model, feeds) < 30


@pytest.mark.usefixtures("amx")
@pytest.mark.parametrize("case", [(16, 4, 4, 32), (8, 12, 1, 37), (64, 5, 2, 5, 13)])
def test_openvino_miscomputes_a_float_kernel_in_bfloat16(case, make_strided, agreement_db):
    """Negative control of what lint says of float networks, and of OpenVINO's default."""
    model = make_strided(*case)
    data = model.graph.input[0].type.tensor_type.shape.dim
    feeds = {"x": np.ones([item.dim_value for item in data], np.float32)}
    feeds["x"] += np.random.default_rng(1).standard_normal(feeds["x"].shape, np.float32)
    assert agreement_db(model, feeds) > 50
    assert agreement_db(model, feeds, "bf16") < 15


TRANSPOSED_WRONG = [(6, 2, 2), (21, 4, 2), (34, 3, 2), (3, 3, 3), (6, 1, 1)]
TRANSPOSED_RIGHT = [(8, 2, 2), (20, 4, 2), (6, 3, 1)]
"""Channels, kernel, stride."""


@pytest.fixture
def make_transposed(make_model):
    """A Conv, a ConvTranspose, SiLU and a Conv."""

    def make(channels, kernel, stride):
        rng = np.random.default_rng(0)
        shapes = {
            "w1": (channels, 3, 1, 1),
            "w2": (channels, 16, kernel, kernel),
            "w3": (8, 16, 1, 1),
        }
        weights = {
            name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
        }
        nodes = [
            helper.make_node("Conv", ["x", "w1"], ["h"], "first"),
            helper.make_node(
                "ConvTranspose", ["h", "w2"], ["u"], "transposed", strides=[stride] * 2
            ),
            helper.make_node("Sigmoid", ["u"], ["s"], "sigmoid"),
            helper.make_node("Mul", ["u", "s"], ["a"], "silu"),
            helper.make_node("Conv", ["a", "w3"], ["y"], "last"),
        ]
        return make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["y"])

    return make


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
@pytest.mark.parametrize("case", TRANSPOSED_WRONG)
def test_a_transposed_conv_of_odd_channels_stays_in_float(
    case, target, make_transposed, quantize, agreement_db
):
    result, feeds = quantize(make_transposed(*case), target)
    (reason,) = (item.reason for item in result.declined if item.node == "transposed")
    assert "no multiple of 4" in reason
    assert agreement_db(result.model, feeds) > 50


@pytest.mark.parametrize("case", TRANSPOSED_RIGHT)
def test_other_transposed_convs_compute_in_integers(case, make_transposed, quantize, agreement_db):
    result, feeds = quantize(make_transposed(*case))
    assert "transposed" in {item.node for item in result.layers}
    assert agreement_db(result.model, feeds) > 50


@pytest.mark.usefixtures("amx")
@pytest.mark.parametrize("case", TRANSPOSED_WRONG)
def test_openvino_miscomputes_a_transposed_conv_of_odd_channels(
    case, make_transposed, quantize, agreement_db, monkeypatch
):
    """The negative control of that rule."""
    monkeypatch.setattr(tensorrt, "find_misread_kernels", lambda graph: {})
    result, feeds = quantize(make_transposed(*case))
    assert agreement_db(result.model, feeds) < 30


def test_a_product_of_a_single_row_stays_in_float(make_model, quantize, agreement_db, monkeypatch):
    """OpenVINO gives its result a batch."""
    weights = {"w": np.random.default_rng(0).standard_normal((16, 8), np.float32)}
    weights |= {"v": np.random.default_rng(1).standard_normal((64, 16), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["h"], "first"),
        helper.make_node("Squeeze", ["h"], ["row"], "squeeze"),
        helper.make_node("MatMul", ["row", "w"], ["y"], "product"),
    ]
    monkeypatch.setattr(vector_layers, "MOST_WEIGHTS", 0)
    model = make_model(nodes, weights, {"x": (1, 64)}, ["y"])
    result, feeds = quantize(model)
    assert "single row" in next(item.reason for item in result.declined if item.node == "product")
    assert agreement_db(result.model, feeds) > 50
    monkeypatch.setattr(tensorrt, "find_misread_kernels", lambda graph: {})
    result, feeds = quantize(model)
    assert agreement_db(result.model, feeds) == -np.inf


@pytest.fixture
def make_volume(make_model):
    """A Conv over three axes, and one in groups behind it, which reads signed values."""

    def make(group):
        rng = np.random.default_rng(0)
        shapes = {"w1": (32, 3, 1, 1, 1), "w2": (16, 32 // group, 3, 1, 1)}
        weights = {
            name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
        }
        nodes = [
            helper.make_node("Conv", ["x", "w1"], ["h"], "first"),
            helper.make_node("Conv", ["h", "w2"], ["y"], "over", group=group, pads=[1, 0, 0] * 2),
        ]
        return make_model(nodes, weights, {"x": (1, 3, 6, 8, 8)}, ["y"])

    return make


@pytest.mark.parametrize(
    ("target", "group", "in_float"),
    [("tensorrt", 4, ["over"]), ("tensorrt", 1, []), ("openvino", 4, [])],
)
def test_groups_over_three_axes_read_no_signed_integers(
    target, group, in_float, make_volume, quantize, agreement_db
):
    result, feeds = quantize(make_volume(group), target)
    assert [item.node for item in result.declined] == in_float
    assert agreement_db(result.model, feeds) > 50


@pytest.mark.skipif(not overflows_on_int8(read_flags()), reason="seen without VNNI only")
def test_why_groups_over_three_axes_stay_in_float(make_volume, quantize, agreement_db, monkeypatch):
    monkeypatch.setattr(tensorrt, "find_misread_volumes", lambda graph: {})
    result, feeds = quantize(make_volume(4), "tensorrt")
    assert result.declined == ()
    assert agreement_db(result.model, feeds) < 45
