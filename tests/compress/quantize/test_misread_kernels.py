"""Convolutions that OpenVINO's kernels for AMX get wrong in integers stay in float."""

import numpy as np
import openvino
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.placement import tensorrt
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


def agreement_db(model, feeds, run_model, precision="f32"):
    compiled = openvino.Core().compile_model(
        openvino.Core().read_model(model.SerializeToString()),
        "CPU",
        {"INFERENCE_PRECISION_HINT": precision},
    )
    wanted = run_model(model, feeds)["y"].astype(np.float64)
    got = np.nan_to_num(compiled(feeds)[0]).astype(np.float64)
    return 10 * np.log10(np.square(wanted).sum() / max(np.square(wanted - got).sum(), 1e-12))


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
@pytest.mark.parametrize("case", WRONG)
def test_a_miscomputed_kernel_stays_in_float(case, target, make_strided, quantize, run_model):
    result, feeds = quantize(make_strided(*case), target)
    (declined,) = result.declined
    assert declined.node == "strided"
    assert "OpenVINO miscomputes" in declined.reason
    assert agreement_db(result.model, feeds, run_model) > 50


@pytest.mark.parametrize("case", RIGHT)
def test_other_kernels_compute_in_integers(case, make_strided, quantize, run_model):
    result, feeds = quantize(make_strided(*case))
    assert not result.declined
    assert agreement_db(result.model, feeds, run_model) > 50


@pytest.mark.usefixtures("amx")
@pytest.mark.parametrize("case", WRONG)
def test_openvino_miscomputes_the_kernel(case, make_strided, quantize, run_model, monkeypatch):
    """The negative control; once it fails, OpenVINO is mended and the rule can go."""
    monkeypatch.setattr(tensorrt, "find_misread_kernels", lambda graph: {})
    result, feeds = quantize(make_strided(*case))
    assert agreement_db(result.model, feeds, run_model) < 30


@pytest.mark.usefixtures("amx")
@pytest.mark.parametrize("case", [(16, 4, 4, 32), (8, 12, 1, 37), (64, 5, 2, 5, 13)])
def test_openvino_miscomputes_a_float_kernel_in_bfloat16(case, make_strided, run_model):
    """Negative control of what lint says of float networks, and of OpenVINO's default."""
    model = make_strided(*case)
    data = model.graph.input[0].type.tensor_type.shape.dim
    feeds = {"x": np.ones([item.dim_value for item in data], np.float32)}
    feeds["x"] += np.random.default_rng(1).standard_normal(feeds["x"].shape, np.float32)
    assert agreement_db(model, feeds, run_model) > 50
    assert agreement_db(model, feeds, run_model, "bf16") < 15
