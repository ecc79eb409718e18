"""Reductions whose axes OpenVINO does not read below opset 18, as sums."""

import numpy as np
import openvino
import pytest
from onnx import helper

from artifacts.openvino_axes import MISREAD
from compress.quantize.api import quantize_model
from compress.quantize.placement.missed_axes import write_missed_axes
from compress.quantize.settings import QuantizeSettings

SHAPE = (2, 4, 5, 6)


@pytest.fixture
def make_reduced(make_model):
    def make(operator, axes=(-1,), opset=17, **attributes):
        weights = {"w": np.random.default_rng(0).normal(0, 0.5, (8, 4, 1, 1)).astype(np.float32)}
        kept = {} if axes is None else {"axes": axes}
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["map"], "conv"),
            helper.make_node("Softplus", ["map"], ["positive"], "positive"),
            helper.make_node(operator, ["positive"], ["y"], "reduce", **kept, **attributes),
        ]
        return make_model(nodes, weights, {"x": SHAPE}, ["y"], opset=opset)

    return make


def draw_input(seed=1):
    return np.random.default_rng(seed).standard_normal(SHAPE, np.float32)


def run_openvino(model, x):
    core = openvino.Core()
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", hint)
    return compiled([x])[0]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[-1], [1], [-1, 2]])
@pytest.mark.parametrize("operator", sorted(MISREAD))
def test_the_form_computes_the_same_on_openvino_too(
    operator, axes, keepdims, make_reduced, rewrite, run_model
):
    model, x = make_reduced(operator, axes, keepdims=keepdims), draw_input()
    done, graph = rewrite(model, x, write_missed_axes, tolerance=1e-5)
    assert done == ["reduce"]
    wanted = run_model(model, {"x": x})["y"]
    assert run_openvino(model, x).size == 1
    got = run_openvino(graph.to_model(), x)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-3)


@pytest.mark.parametrize(("operator", "axes"), [("ReduceL2", [1]), ("ReduceL1", None)])
def test_other_reductions_stay(operator, axes, make_reduced, rewrite):
    assert rewrite(make_reduced(operator, axes), draw_input(), write_missed_axes)[0] == []


@pytest.mark.parametrize("target", ["openvino", "tensorrt"])
@pytest.mark.parametrize("operator", sorted(MISREAD))
def test_what_is_quantized_is_computed_as_the_file_says(operator, target, make_reduced, run_model):
    model = make_reduced(operator, [1], keepdims=0)
    samples = [{"x": draw_input(seed)} for seed in range(4)]
    settings = QuantizeSettings(target=target, weights="int8-pairs")
    quantized = quantize_model(model, samples, settings).model
    wanted = run_model(model, samples[0])["y"]
    got = run_openvino(quantized, samples[0]["x"])
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0.1, atol=0.1)


def test_large_exponents_do_not_overflow(make_reduced, rewrite):
    x = np.full(SHAPE, 300.0, np.float32)
    done, graph = rewrite(make_reduced("ReduceLogSumExp", [1]), x, write_missed_axes)
    assert done == ["reduce"]
    assert np.isfinite(run_openvino(graph.to_model(), x)).all()
