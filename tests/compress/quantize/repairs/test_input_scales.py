"""First layers read features of very different ranges, such as lidar points', scaled alike."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import TensorRT
from compress.quantize.prepare import prepare_network
from compress.quantize.repairs.input_scales import scale_inputs
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import simplify
from compress.quantize.streaming import StreamingPass

RANGES = np.float32([40, 40, 2, 1, 0.5, 0.2])
"""Of a lidar point's features: x, y, z, intensity and two offsets, as an example."""


def matches_features(layer, ranges):
    """A weight that gives all features a say, as training would."""
    weight = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)
    weight = weight / ranges[:, None]
    if layer == "MatMul":
        return weight
    return weight.T if layer == "Gemm" else weight.T[:, :, None, None].repeat(3, axis=2)


@pytest.fixture(params=["MatMul", "Gemm", "Conv", "MatMul behind a Concat"])
def make_points(request, make_model):
    """Builds (network, samples) whose first layer reads features of these ranges."""

    def make(ranges=RANGES, others_read=False):
        layer = request.param.split()[0]
        shape = {"MatMul": (1, 64, 6), "Gemm": (64, 6), "Conv": (1, 6, 16, 8)}[layer]
        weights = {"w0": matches_features(layer, ranges), "w1": np.eye(8, dtype=np.float32)}
        nodes, read = [], "points"
        if "Concat" in request.param:
            nodes.append(helper.make_node("Neg", ["points"], ["n"], "negative"))
            nodes.append(helper.make_node("Concat", ["points", "n"], ["both"], axis=-1))
            weights["w0"] = np.concatenate([weights["w0"], weights["w0"][::-1] * 0.1])
            read = "both"
        options = {"Gemm": {"transB": 1}, "Conv": {"pads": [1, 0, 1, 0]}}.get(layer, {})
        nodes.append(helper.make_node(layer, [read, "w0"], ["c"], "first", **options))
        nodes.append(helper.make_node("Relu", ["c"], ["y"], "relu"))
        outputs = ["y"]
        if others_read:
            nodes.append(helper.make_node("Abs", [read], ["z"], "other"))
            outputs.append("z")
        rng = np.random.default_rng(0)
        axis = 1 if layer == "Conv" else -1
        scales = ranges.reshape([6 if at == axis % len(shape) else 1 for at in range(len(shape))])
        samples = [
            {"points": (rng.uniform(-1, 1, shape) * scales).astype(np.float32)} for _ in range(16)
        ]
        return make_model(nodes, weights, {"points": shape}, outputs), samples

    return make


def scaled(model, samples):
    graph = Graph(model)
    simplify(graph)
    names = [item.node for item in TensorRT().place(graph)[0]]
    done = scale_inputs(
        graph, ChannelSurvey(samples), TensorRT(), names, QuantizeSettings().weight_grids
    )
    return graph.to_model(), done


@pytest.mark.parametrize("others_read", [False, True])
def test_the_float_results_stay(others_read, make_points, run_model):
    model, samples = make_points(others_read=others_read)
    after, done = scaled(model, samples)
    assert len(done) == 1
    for feeds in samples[:2]:
        expected, got = run_model(model, feeds), run_model(after, feeds)
        for name in expected:
            np.testing.assert_allclose(got[name], expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_features_of_other_ranges_gain_several_decibels(target, make_points):
    model, samples = make_points()

    def sqnr(is_equalized):
        settings = QuantizeSettings(target=target, equalization=is_equalized)
        return quantize_model(model, samples, settings).outputs_db["y"]

    assert sqnr(True) > sqnr(False) + 6


def test_features_of_equal_ranges_need_no_product(make_points):
    model, samples = make_points(ranges=np.ones(6, np.float32))
    after, done = scaled(model, samples)
    assert done == []
    assert len(after.graph.node) == len(Graph(model).nodes)


def test_a_layer_that_stays_in_float_needs_no_product(make_points, run_model):
    model, samples = make_points()
    prepared = prepare_network(model, samples, QuantizeSettings())
    decisions = StreamingPass(prepared, QuantizeSettings()).run(samples)
    products = [
        [node.op_type for node in network.graph.node].count("Mul")
        for network in (prepared.write_model(decisions), prepared.write_float())
    ]
    assert products == [1, 0]
    got, expected = run_model(prepared.write_float(), samples[0]), run_model(model, samples[0])
    np.testing.assert_allclose(got["y"], expected["y"], rtol=1e-4, atol=1e-4)


def test_what_layers_computed_is_left_to_other_repairs(make_model):
    """Behind a layer, factors go into its weights: equalization's work."""
    weights = {
        "w0": np.diag(RANGES).astype(np.float32),
        "w1": matches_features("MatMul", RANGES),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["c"], "first"),
        helper.make_node("Tanh", ["c"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", "c"], ["m"], "gate"),
        helper.make_node("MatMul", ["m", "w1"], ["y"], "second"),
    ]
    samples = [{"x": np.random.default_rng(0).uniform(-1, 1, (1, 9, 6)).astype(np.float32)}]
    assert scaled(make_model(nodes, weights, {"x": (1, 9, 6)}, ["y"]), samples)[1] == []
