"""Convolutions that OpenVINO's kernels for AMX get wrong in integers stay in float."""

from pathlib import Path

import numpy as np
import openvino
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.placement import tensorrt
from compress.quantize.settings import QuantizeSettings

HAS_AMX = "amx_int8" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
WRONG = [(32, 4, 4, 32), (48, 4, 4, 24), (16, 8, 8, 32), (32, 8, 4, 32), (16, 8, 1, 37)]
RIGHT = [(64, 4, 4, 32), (16, 4, 4, 32), (32, 2, 2, 32), (32, 4, 4, 37), (20, 8, 1, 37)]
"""Channels, kernel, stride, width."""


@pytest.fixture
def make_strided(make_model):
    """A Conv of 1x1, and one of the case behind it."""

    def make(channels, kernel, stride, width):
        rng = np.random.default_rng(0)
        shapes = {"w1": (channels, 3, 1, 1), "w2": (32, channels, kernel, kernel)}
        weights = {
            name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
        }
        nodes = [
            helper.make_node("Conv", ["x", "w1"], ["h"], "first"),
            helper.make_node("Conv", ["h", "w2"], ["y"], "strided", strides=[stride] * 2),
        ]
        return make_model(nodes, weights, {"x": (1, 3, width, width)}, ["y"])

    return make


def quantize(model, width, target="openvino"):
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((1, 3, width, width)).astype(np.float32)}]
    settings = QuantizeSettings(target=target, equalization=False)
    return quantize_model(model, samples, settings), samples[0]


def agreement_db(model, feeds, run_model):
    compiled = openvino.Core().compile_model(
        openvino.Core().read_model(model.SerializeToString()),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32"},
    )
    wanted, got = run_model(model, feeds)["y"], compiled(feeds)[0]
    return 10 * np.log10(np.square(wanted).sum() / max(np.square(wanted - got).sum(), 1e-12))


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
@pytest.mark.parametrize("case", WRONG)
def test_a_miscomputed_kernel_stays_in_float(case, target, make_strided, run_model):
    result, feeds = quantize(make_strided(*case), case[-1], target)
    (declined,) = result.declined
    assert declined.node == "strided"
    assert "OpenVINO miscomputes" in declined.reason
    assert agreement_db(result.model, feeds, run_model) > 50


@pytest.mark.parametrize("case", RIGHT)
def test_other_kernels_compute_in_integers(case, make_strided, run_model):
    result, feeds = quantize(make_strided(*case), case[-1])
    assert not result.declined
    assert agreement_db(result.model, feeds, run_model) > 50


@pytest.mark.skipif(not HAS_AMX, reason="only the kernels for AMX are wrong")
@pytest.mark.parametrize("case", WRONG)
def test_openvino_miscomputes_the_kernel(case, make_strided, run_model, monkeypatch):
    """The negative control; once it fails, OpenVINO is mended and the rule can go."""
    monkeypatch.setattr(tensorrt, "find_misread_kernels", lambda graph: {})
    result, feeds = quantize(make_strided(*case), case[-1])
    assert agreement_db(result.model, feeds, run_model) < 30
