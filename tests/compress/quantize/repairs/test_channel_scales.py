"""Depthwise layers behind HardSwish and the like read channels of similar ranges."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement import TensorRT
from compress.quantize.prepared import prepare_network
from compress.quantize.repairs.channel_scales import scale_channels
from compress.quantize.repairs.equalization import ENOUGH_SAMPLES
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import simplify
from compress.quantize.streaming import StreamingPass


@pytest.fixture
def samples(samples):
    """As many as it takes to be sure how loud a channel gets."""
    return [*samples] * (ENOUGH_SAMPLES // len(samples) + 1)


@pytest.fixture
def make_mobile(make_model):
    """A block of MobileNetV3 whose channels differ in loudness by `spread`."""

    def make(activation="HardSwish", spread=16.0, is_read_twice=False):
        rng = np.random.default_rng(0)
        loudness = np.geomspace(1, spread, 8).astype(np.float32).reshape(-1, 1, 1, 1)
        weights = {
            "w0": rng.standard_normal((1, 3, 1, 1)).astype(np.float32) * loudness,
            "w1": rng.standard_normal((8, 1, 3, 3)).astype(np.float32) / loudness,
            "w2": rng.standard_normal((4, 8, 1, 1)).astype(np.float32),
        }
        nodes = [helper.make_node("Conv", ["x", "w0"], ["c0"], "expand")]
        if activation == "SiLU":
            nodes.append(helper.make_node("Sigmoid", ["c0"], ["s"], "sigmoid"))
            nodes.append(helper.make_node("Mul", ["c0", "s"], ["a"], "silu"))
        else:
            nodes.append(helper.make_node(activation, ["c0"], ["a"], "act"))
        nodes.append(helper.make_node("Conv", ["a", "w1"], ["c1"], "depthwise", group=8))
        last = "c1"
        if is_read_twice:
            nodes.append(helper.make_node("GlobalAveragePool", ["a"], ["g"], "pool"))
            nodes.append(helper.make_node("Add", ["c1", "g"], ["sum"], "sum"))
            last = "sum"
        nodes.append(helper.make_node("Conv", [last, "w2"], ["y"], "project"))
        return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])

    return make


def scaled(model, samples, placement=None, *, knows_shapes=True):
    graph = Graph(model)
    simplify(graph)
    if not knows_shapes:
        graph.shapes = {name: graph.shapes[name] for name in graph.inputs}
    placement = placement or TensorRT()
    placed, _ = placement.place(graph)
    names = [item.node for item in placed]
    done = scale_channels(graph, samples, placement, names, QuantizeSettings().weight_grids)
    return graph.to_model(), done


@pytest.mark.parametrize("knows_shapes", [True, False])
@pytest.mark.parametrize("activation", ["HardSwish", "SiLU", "Elu"])
def test_the_float_results_stay(activation, knows_shapes, make_mobile, samples, run_model):
    model = make_mobile(activation)
    after, done = scaled(model, samples, knows_shapes=knows_shapes)
    assert len(done) == 1
    for feeds in samples:
        expected = run_model(model, feeds)["y"]
        np.testing.assert_allclose(run_model(after, feeds)["y"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_uneven_channels_gain_several_decibels(target, make_mobile, samples):
    def sqnr(is_equalized):
        settings = QuantizeSettings(target=target, equalization=is_equalized)
        return quantize_model(make_mobile(), samples, settings).outputs_db["y"]

    assert sqnr(True) > sqnr(False) + 3


@pytest.mark.parametrize(
    "options", [{"spread": 1.0}, {"is_read_twice": True}], ids=["even", "read by others"]
)
def test_products_are_only_put_where_they_pay(options, make_mobile, samples):
    model = make_mobile(**options)
    after, done = scaled(model, samples)
    assert done == []
    assert len(after.graph.node) == len(Graph(model).nodes)


def test_a_layer_that_stays_in_float_needs_no_product(make_mobile, samples, run_model):
    model = make_mobile()
    settings = QuantizeSettings()
    prepared = prepare_network(model, samples, settings)
    kept = prepared.with_float_nodes(frozenset({"depthwise"}))
    decisions = StreamingPass(prepared, settings).run(samples)
    products = {
        name: [node.op_type for node in network.graph.node].count("Mul")
        for name, network in (
            ("int8", prepared.write_model(decisions)),
            ("depthwise in float", kept.write_model(decisions)),
            ("float", prepared.write_float()),
        )
    }
    assert products == {"int8": 1, "depthwise in float": 0, "float": 0}
    expected = run_model(model, samples[0])["y"]
    got = run_model(prepared.write_float(), samples[0])["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_few_samples_have_not_shown_how_loud_a_channel_gets(make_mobile, samples):
    _, (few,) = scaled(make_mobile(), samples[: ENOUGH_SAMPLES - 1])
    _, (many,) = scaled(make_mobile(), samples)
    assert "factors 0.500 to 1" in few
    assert "factors 0.0" in many


def test_weights_alone_need_no_product(make_mobile, samples):
    settings = QuantizeSettings(activations="float")
    assert not [
        line
        for line in prepare_network(make_mobile(), samples, settings).simplified
        if line.startswith("scaled")
    ]
