"""SmoothQuant and AWQ keep the float results and are applied only where they help."""

import numpy as np
import pytest
from onnx import helper

from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import TensorRT
from compress.quantize.qparams import INT8_WEIGHTS, WEIGHT_GRIDS, WeightGrids
from compress.quantize.repairs.linear_group import find_linear_groups, rescale_linear
from compress.quantize.repairs.migration import migrate_scales
from compress.quantize.rounding import Nearest
from compress.quantize.settings import QuantizeSettings


@pytest.fixture
def make_block(make_model):
    """LayerNormalization with a few loud channels, two products, a ReLU and a third product."""

    def make(loudness: float):
        rng = np.random.default_rng(0)
        gamma = np.ones(32, np.float32)
        gamma[[3, 17]] = loudness
        weights = {
            "gamma": gamma,
            "beta": 0.1 * gamma,
            "w1": rng.standard_normal((32, 48)).astype(np.float32),
            "b1": rng.standard_normal(48).astype(np.float32),
            "w2": rng.standard_normal((48, 8)).astype(np.float32),
            "w3": rng.standard_normal((32, 4)).astype(np.float32),
        }
        for name in ("w1", "w3"):
            weights[name] /= gamma[:, None] ** 0.7
        nodes = [
            helper.make_node("LayerNormalization", ["x", "gamma", "beta"], ["n"], "norm"),
            helper.make_node("MatMul", ["n", "w1"], ["m"], "up"),
            helper.make_node("Add", ["m", "b1"], ["a"], "offset"),
            helper.make_node("Relu", ["a"], ["r"], "relu"),
            helper.make_node("MatMul", ["r", "w2"], ["y"], "down"),
            helper.make_node("MatMul", ["n", "w3"], ["z"], "side"),
        ]
        return make_model(nodes, weights, {"x": (1, 10, 32)}, ["y", "z"])

    return make


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((1, 10, 32)).astype(np.float32)} for _ in range(count)]


def test_the_groups_of_a_block(make_block):
    groups = {group.tensor: group for group in find_linear_groups(Graph(make_block(1.0)))}
    assert groups["n"].readers == ("up", "side")
    assert groups["n"].divided == (("norm", 1, 0), ("norm", 2, 0))
    assert groups["r"].readers == ("down",)
    assert groups["r"].divided == (("up", 1, 1), ("offset", 1, 0))
    assert set(groups) == {"n", "r"}


def test_rescaling_changes_no_output(make_block, run_model):
    model = make_block(30.0)
    graph = Graph(model)
    rng = np.random.default_rng(1)
    for group in find_linear_groups(graph):
        rescale_linear(graph, group, rng.uniform(0.1, 10, group.channels))
    feeds = rows(1)[0]
    got, wanted = run_model(graph.to_model(), feeds), run_model(model, feeds)
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-3, atol=1e-3)


def test_loud_channels_are_migrated_and_the_quantized_network_is_better(make_block):
    model, judged = make_block(30.0), rows(8, seed=9)

    def noise(is_repaired):
        settings = QuantizeSettings(equalization=is_repaired)
        result = quantize_model(model, rows(8), settings)
        outputs = compare_models(model, result.model, judged)["outputs"]
        return np.asarray([10 ** (-item["sqnr_db"] / 10) for item in outputs.values()]), result

    plain, _ = noise(False)
    repaired, result = noise(True)
    assert (repaired < 0.5 * plain).all()
    assert any("rescaled the input of up, side" in line for line in result.simplified)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_what_does_not_help_is_left_alone_with_the_reason(make_block, run_model, weights):
    model = make_block(1.0)
    graph = Graph(model)
    lines = migrate_scales(
        graph,
        ChannelSurvey(rows(6)),
        TensorRT(),
        ["up", "side"],
        WeightGrids(WEIGHT_GRIDS[weights]),
    )
    assert len(lines) == 1
    assert "left the input of up, side as it is: no factors" in lines[0]
    feeds = rows(1)[0]
    np.testing.assert_array_equal(
        run_model(graph.to_model(), feeds)["y"], run_model(model, feeds)["y"]
    )


def test_salient_channels_help_int4_weights(make_block):
    model, judged = make_block(30.0), rows(8, seed=9)

    def noise(is_repaired):
        settings = QuantizeSettings(
            weights="int4", int4_share=1, rounding=Nearest(), equalization=is_repaired
        )
        result = quantize_model(model, rows(8), settings)
        outputs = compare_models(model, result.model, judged)["outputs"]
        return sum(10 ** (-item["sqnr_db"] / 10) for item in outputs.values())

    assert noise(True) < noise(False)


def test_one_picture_and_a_tensor_of_zeros_are_survived(make_model):
    weights = {
        "gamma": np.zeros(8, np.float32),
        "w": np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gamma"], ["n"], "norm"),
        helper.make_node("MatMul", ["n", "w"], ["y"], "product"),
    ]
    model = make_model(nodes, weights, {"x": (1, 5, 8)}, ["y"])
    one = [{"x": np.ones((1, 5, 8), np.float32)}]
    lines = migrate_scales(Graph(model), ChannelSurvey(one), TensorRT(), ["product"], INT8_WEIGHTS)
    assert lines == ["left the input of product as it is: it is 0 or not finite"]


@pytest.mark.parametrize("norm", ["affine", "BatchNormalization"])
def test_pictures_in_front_of_1x1_layers_are_migrated_too(norm, make_model, run_model):
    """What LayerNormalization becomes with the channels first, and a norm before its layer."""
    rng = np.random.default_rng(0)
    gamma = np.ones(16, np.float32)
    gamma[[3, 9]] = 30
    shape = (16, 1, 1) if norm == "affine" else (16,)
    weights = {
        "gamma": gamma.reshape(shape),
        "beta": 0.1 * gamma.reshape(1, 16, 1, 1) if norm == "affine" else 0.1 * gamma,
        "zero": np.zeros(16, np.float32),
        "one": np.ones(16, np.float32),
        "w": (rng.standard_normal((8, 16, 1, 1)) / gamma[:, None, None] ** 0.7).astype(np.float32),
    }
    nodes = [
        helper.make_node("Mul", ["x", "gamma"], ["m"], "factor"),
        helper.make_node("Add", ["m", "beta"], ["n"], "offset"),
    ]
    if norm != "affine":
        constants = ["gamma", "beta", "zero", "one"]
        nodes = [helper.make_node(norm, ["x", *constants], ["n"], "norm")]
    nodes += [
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "w"], ["y"], "layer"),
    ]
    model = make_model(nodes, weights, {"x": (1, 16, 6, 8)}, ["y"])
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((1, 16, 6, 8)).astype(np.float32)} for _ in range(6)]
    graph = Graph(model)
    lines = migrate_scales(graph, ChannelSurvey(samples), TensorRT(), {"layer"}, INT8_WEIGHTS)
    assert [line.split(" (")[0] for line in lines] == ["rescaled the input of layer"]
    wanted, got = (run_model(item, samples[0])["y"] for item in (model, graph.to_model()))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attributes", [{"group": 4}, {"pads": [1] * 4}])
def test_grouped_and_padded_layers_are_not(attributes, make_model):
    groups = attributes.get("group", 1)
    weights = {
        "gamma": np.ones((1, 8, 1, 1), np.float32),
        "w": np.ones((8, 8 // groups, 1, 1), np.float32),
    }
    nodes = [
        helper.make_node("Mul", ["x", "gamma"], ["n"], "factor"),
        helper.make_node("Conv", ["n", "w"], ["y"], "layer", **attributes),
    ]
    graph = Graph(make_model(nodes, weights, {"x": (1, 8, 4, 4)}, ["y"]))
    assert find_linear_groups(graph) == []
