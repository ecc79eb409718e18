"""Joined channels at levels a thousand times apart are quantized as if they were at one level."""

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import OpenVINO
from compress.quantize.repairs.channel_variables import ChannelVariables
from compress.quantize.repairs.joined_levels import level_joined
from compress.quantize.repairs.joined_scales import SUFFIX, insert_factors
from compress.quantize.settings import QuantizeSettings
from tests.applied_repair import apply_repair

DECADES = 3
CLOSE_DB = 1.5
level = partial(apply_repair, level_joined)


@pytest.fixture
def plain_model(make_model):
    """Two layers are joined, shuffled and split; one half meets a third layer and a HardSwish."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    weights = {
        "w0": normal(8, 3, 3, 3),
        "w1": normal(8, 3, 3, 3),
        "w2": normal(8, 8, 1, 1),
        "w3": normal(8, 3, 1, 1),
        "w4": normal(4, 24, 3, 3),
        "parted": np.array([0, 2, 8, 12, 16], np.int64),
        "whole": np.array([0, 16, 12, 16], np.int64),
        "halves": np.array([8, 8], np.int64),
    }
    around = {"pads": [1] * 4}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem", **around),
        helper.make_node("Relu", ["c0"], ["r0"], "relu0"),
        helper.make_node("Conv", ["x", "w1"], ["c1"], "other", **around),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Concat", ["r0", "r1"], ["j"], "join", axis=1),
        helper.make_node("Reshape", ["j", "parted"], ["p"], "part"),
        helper.make_node("Transpose", ["p"], ["t"], "shuffle", perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["t", "whole"], ["s"], "unite"),
        helper.make_node("Split", ["s", "halves"], ["d", "e"], "split", axis=1),
        helper.make_node("Conv", ["d", "w2"], ["c2"], "branch"),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("Conv", ["x", "w3"], ["c3"], "curved"),
        helper.make_node("HardSwish", ["c3"], ["h"], "act"),
        helper.make_node("Concat", ["r2", "e", "h"], ["k"], "join2", axis=1),
        helper.make_node("Conv", ["k", "w4"], ["y"], "head", **around),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


@pytest.fixture
def spread_model(plain_model):
    """The same function, with what layers write at levels of their own."""
    graph, rng = Graph(plain_model), np.random.default_rng(2)
    channels = ChannelVariables.follow(graph)
    factors = 10 ** rng.uniform(-DECADES / 2, DECADES / 2, channels.count)
    written = np.zeros(channels.count, bool)
    for tensor in channels.writers.values():
        written[channels.of[tensor]] = True
    written[list(channels.pinned)] = False
    insert_factors(graph, channels, np.where(written, factors, 1.0), ChannelSurvey([]))
    return onnx.shape_inference.infer_shapes(graph.to_model())


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_levels_cost_next_to_nothing(target, plain_model, spread_model, many):
    def sqnr(model):
        return quantize_model(model, many, QuantizeSettings(target=target)).outputs_db["y"]

    assert sqnr(spread_model) > sqnr(plain_model) - CLOSE_DB


def test_the_float_results_stay_and_no_product_is_needed(spread_model, many, run_model):
    graph, done = level(spread_model, many)
    assert done
    assert not any(SUFFIX in name for name in graph.weights)
    assert [node.op_type for node in graph.nodes] == [
        node.op_type for node in spread_model.graph.node
    ]
    for feeds in many[:2]:
        expected = run_model(spread_model, feeds)["y"]
        got = run_model(graph.to_model(), feeds)["y"]
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_what_is_shuffled_and_split_has_one_level(spread_model, many):
    """Half of the joined channels meet a quiet HardSwish, which the other half has to follow."""
    weight = next(item for item in spread_model.graph.initializer if item.name == "w3")
    quiet = onnx.numpy_helper.to_array(weight) / 100
    weight.CopyFrom(onnx.numpy_helper.from_array(quiet, weight.name))
    graph, done = level(spread_model, many)
    assert done
    seen = ChannelSurvey(many).look(graph, {"d": 1, "e": 1})
    loudest = [np.sqrt(item.power).max() for item in seen.values()]
    assert max(loudest) < 8 * min(loudest)


def test_what_a_layer_in_float_reads_counts_too(spread_model, many):
    """Its channels were joined in integers with those that other layers read."""
    graph = Graph(spread_model)
    assert level_joined(graph, ChannelSurvey(many), OpenVINO(), ["branch"])
    seen = ChannelSurvey(many).look(graph, {"e": 1, "h": 1})
    loudest = [np.sqrt(item.power).max() for item in seen.values()]
    assert max(loudest) < 8 * min(loudest)


def test_the_survey_knows_of_the_levels(spread_model, many):
    graph, placement = Graph(spread_model), OpenVINO()
    placed, _ = placement.place(graph)
    survey = ChannelSurvey(many)
    level_joined(graph, survey, placement, [item.node for item in placed])
    for tensor in ("d", "k"):
        told, fresh = (
            item.look(graph, {tensor: 1})[tensor] for item in (survey, ChannelSurvey(many))
        )
        np.testing.assert_allclose(told.peaks, fresh.peaks, rtol=1e-4)


def test_what_is_at_one_level_is_left_alone(plain_model, many):
    graph, done = level(plain_model, many)
    assert done == []
    assert graph.to_model().graph.initializer == Graph(plain_model).to_model().graph.initializer


def test_what_stays_in_float_is_left_alone(spread_model, many):
    assert level_joined(Graph(spread_model), ChannelSurvey(many), OpenVINO(), []) == []


def test_a_norm_that_writes_into_a_concat_takes_its_level(make_model, many, run_model):
    rng = np.random.default_rng(0)
    draw = partial(rng.standard_normal, dtype=np.float32)
    gains = np.geomspace(1e-3, 1, 8, dtype=np.float32)
    weights = {
        "w0": draw((8, 3, 3, 3)),
        "gains": gains,
        "offsets": np.zeros(8, np.float32),
        "w1": draw((8, 3, 3, 3)),
        "w2": np.concatenate(
            [draw((4, 8, 1, 1)) / gains.reshape(1, -1, 1, 1), draw((4, 8, 1, 1))], 1
        ),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem"),
        helper.make_node("InstanceNormalization", ["c0", "gains", "offsets"], ["n"], "norm"),
        helper.make_node("Conv", ["x", "w1"], ["c1"], "other"),
        helper.make_node("Concat", ["n", "c1"], ["j"], "join", axis=1),
        helper.make_node("Conv", ["j", "w2"], ["y"], "head"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])
    graph, done = level(model, many)
    assert len(done) == 1
    expected, got = (run_model(item, many[0])["y"] for item in (model, graph.to_model()))
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
