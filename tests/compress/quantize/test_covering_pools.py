"""AveragePool whose window is larger than what it reads, in a form that OpenVINO reads."""

import numpy as np
import openvino
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.placement.covering_pools import write_covering_pools
from compress.quantize.settings import QuantizeSettings

SHAPE = (1, 8, 5, 6)


def make_pool(make_model, kernel, **attributes):
    weights = {"w": np.random.default_rng(0).normal(0, 0.3, (8, 8, 1, 1)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["map"], "conv"),
        helper.make_node("AveragePool", ["map"], ["y"], "pool", kernel_shape=kernel, **attributes),
    ]
    return make_model(nodes, weights, {"x": SHAPE}, ["y"], opset=19)


def compile_for_openvino(model):
    core = openvino.Core()
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    return core.compile_model(core.read_model(model.SerializeToString()), "CPU", hint)


@pytest.mark.parametrize("counted", [0, 1])
def test_the_form_computes_the_same_and_openvino_reads_it(make_model, rewrite, counted):
    attributes = {"strides": [40, 40], "ceil_mode": 1, "count_include_pad": counted}
    model = make_pool(make_model, [40, 40], **attributes)
    x = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
    done, graph = rewrite(model, x, write_covering_pools)
    assert done == ["pool"]
    compile_for_openvino(graph.to_model())
    with pytest.raises(RuntimeError, match="larger than the data"):
        compile_for_openvino(model)


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [([5, 6], {}), ([5, 3], {}), ([7, 8], {"pads": [1, 1, 1, 1]}), ([3, 3], {"strides": [3, 3]})],
)
def test_other_pools_stay(make_model, rewrite, kernel, attributes):
    x = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
    model = make_pool(make_model, kernel, **attributes)
    assert rewrite(model, x, write_covering_pools)[0] == []


def test_such_a_network_is_quantized_for_openvino(make_model):
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal(SHAPE, np.float32)} for _ in range(4)]
    model = make_pool(make_model, [40, 40], strides=[40, 40], ceil_mode=1, count_include_pad=1)
    result = quantize_model(model, samples, QuantizeSettings(target="openvino"))
    assert compile_for_openvino(result.model)([samples[0]["x"]])[0].shape == (1, 8, 1, 1)
