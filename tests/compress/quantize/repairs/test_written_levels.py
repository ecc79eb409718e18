"""Channels at levels a thousand times apart are quantized as if they were at one level."""

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.repairs.scale_group import find_scale_groups, rescale
from compress.quantize.repairs.written_levels import level_channels
from compress.quantize.settings import QuantizeSettings
from tests.applied_repair import apply_repair

SPREAD = np.geomspace(1e-3, 1, 16)
CLOSE_DB = 1.5
level = partial(apply_repair, level_channels)


@pytest.fixture
def plain_model(make_model):
    """Writers of each kind: layers, with groups or transposed, summed, and a norm that stays."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    silent = rng.uniform(-0.1, 0.1, 16).astype(np.float32)
    silent[5] = -100
    weights = {
        "w0": normal(16, 3, 3, 3),
        "b0": silent,
        "w1": normal(16, 4, 3, 3),
        "w2": normal(16, 16, 1, 1),
        "w3": normal(16, 16, 2, 2),
        "gains": rng.uniform(0.8, 1.2, 16).astype(np.float32),
        "offsets": silent,
        "w4": normal(8, 16, 3, 3),
        "w5": normal(8, 8, 3, 3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], "stem", pads=[1] * 4),
        helper.make_node("Relu", ["c0"], ["r0"], "relu0"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], "grouped", group=4, pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "pointwise"),
        helper.make_node("Add", ["c2", "r0"], ["s"], "sum"),
        helper.make_node("ConvTranspose", ["s", "w3"], ["u"], "transposed", strides=[2, 2]),
        helper.make_node("InstanceNormalization", ["u", "gains", "offsets"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r2"], "relu2"),
        helper.make_node("Conv", ["r2", "w4"], ["c4"], "reader", pads=[1] * 4),
        helper.make_node("Relu", ["c4"], ["r4"], "relu4"),
        helper.make_node("Conv", ["r4", "w5"], ["y"], "head", pads=[1] * 4),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


def spread(model, levels=SPREAD):
    """Returns the same function with channels at such levels, in another order in each tensor."""
    graph, rng = Graph(model), np.random.default_rng(2)
    for group in find_scale_groups(graph):
        channels = graph.shapes[group.readers and graph.node(group.readers[0]).input[0]][1]
        rescale(graph, group, rng.permutation(levels)[:channels])
    return onnx.shape_inference.infer_shapes(graph.to_model())


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_levels_cost_next_to_nothing(target, plain_model, many):
    def sqnr(model):
        return quantize_model(model, many, QuantizeSettings(target=target)).outputs_db["y"]

    assert sqnr(spread(plain_model)) > sqnr(plain_model) - CLOSE_DB


def test_the_float_results_stay(plain_model, many, run_model):
    graph, done = level(spread(plain_model), many)
    assert len(done) == len(find_scale_groups(Graph(plain_model)))
    for feeds in many[:2]:
        expected = run_model(plain_model, feeds)["y"]
        got = run_model(graph.to_model(), feeds)["y"]
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_what_is_at_one_level_is_left_alone(plain_model, many):
    graph, done = level(plain_model, many)
    assert done == []
    assert graph.to_model().graph.initializer == Graph(plain_model).to_model().graph.initializer


def test_a_channel_that_is_quiet_but_written_as_loud_as_others_keeps_its_scale(plain_model, many):
    """Its weights say that other pictures may make it loud."""
    offsets = next(item for item in plain_model.graph.initializer if item.name == "b0")
    values = np.zeros(16, np.float32)
    for _ in range(2):
        offsets.CopyFrom(onnx.numpy_helper.from_array(values, "b0"))
        peaks = ChannelSurvey(many).look(Graph(plain_model), {"r0": 1})["r0"].peaks
        values[3] = peaks.max() / 100 - peaks[3]
    assert 0 < peaks[3] < peaks.max() / 50
    assert level(plain_model, many)[1] == []


def test_what_equalization_mends_as_well_is_left_to_it(make_model, many):
    rng = np.random.default_rng(0)
    loudness = np.geomspace(1 / 20, 1, 8).reshape(-1, 1, 1, 1)
    weights = {
        "w0": (rng.standard_normal((8, 3, 1, 1)) * loudness).astype(np.float32),
        "w1": rng.standard_normal((8, 1, 3, 3)).astype(np.float32),
        "w2": rng.standard_normal((4, 8, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem"),
        helper.make_node("Relu", ["c0"], ["r0"], "relu"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], "depthwise", group=8),
        helper.make_node("Sigmoid", ["c1"], ["a"], "sigmoid"),
        helper.make_node("Conv", ["a", "w2"], ["y"], "head"),
    ]
    assert level(make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"]), many)[1] == []


def test_layers_that_share_weights_still_do(make_model, many):
    rng = np.random.default_rng(0)
    loudness = SPREAD.reshape(-1, 1, 1, 1)
    draw = partial(rng.standard_normal, dtype=np.float32)
    weights = {
        "w0": (draw((16, 3, 3, 3)) * loudness).astype(np.float32),
        "w1": (draw((4, 16, 3, 3)) / loudness.reshape(1, -1, 1, 1)).astype(np.float32),
    }
    half = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("AveragePool", ["x"], ["small"], "pool", **half),
        *(
            node
            for number, source in enumerate(["x", "small"])
            for node in (
                helper.make_node("Conv", [source, "w0"], [f"c{number}"], f"writer{number}"),
                helper.make_node("Relu", [f"c{number}"], [f"r{number}"], f"relu{number}"),
                helper.make_node("Conv", [f"r{number}", "w1"], [f"d{number}"], f"reader{number}"),
                helper.make_node("Sigmoid", [f"d{number}"], [f"y{number}"], f"act{number}"),
            )
        ),
    ]
    graph, done = level(make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y0", "y1"]), many)
    assert len(done) == 1
    for kind in ("writer", "reader"):
        assert graph.node(f"{kind}0").input[1] == graph.node(f"{kind}1").input[1]
