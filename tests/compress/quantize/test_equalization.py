"""Equalization keeps the float network's results and makes the quantized one better."""

import numpy as np
import onnx
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import PLACEMENTS, TensorRT
from compress.quantize.repairs.equalization import ENOUGH_SAMPLES, equalize
from compress.quantize.repairs.scale_group import find_scale_groups, rescale
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import simplify


@pytest.fixture
def uneven_model(make_model):
    """A chain whose channels differ in loudness by up to 100, with every kind of passage."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32) * 0.3

    loudness = np.geomspace(0.05, 5, 8).astype(np.float32)
    weights = {
        "w0": normal(8, 3, 3, 3) * loudness.reshape(-1, 1, 1, 1),
        "w1": normal(8, 1, 3, 3) * loudness[::-1].reshape(-1, 1, 1, 1),
        "slope": np.full((8, 1, 1), 0.1, np.float32),
        "w2": normal(8, 4, 1, 1) * loudness.reshape(-1, 1, 1, 1),
        "w3": normal(8, 8, 2, 2),
        "w4": normal(4, 8, 1, 1),
        "b4": normal(4),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem", pads=[1] * 4),
        helper.make_node("Relu", ["c0"], ["r0"], "relu"),
        helper.make_node("MaxPool", ["r0"], ["p0"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p0", "w1"], ["c1"], "depthwise", group=8, pads=[1] * 4),
        helper.make_node("PRelu", ["c1", "slope"], ["r1"], "prelu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "grouped", group=2),
        helper.make_node("Add", ["c2", "r1"], ["s"], "residual"),
        helper.make_node("ConvTranspose", ["s", "w3"], ["u"], "upsample", strides=[2, 2]),
        helper.make_node("Relu", ["u"], ["r2"], "relu2"),
        helper.make_node("Conv", ["r2", "w4", "b4"], ["y"], "head"),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


def equalized(model, samples, placement=None):
    graph = Graph(model)
    simplify(graph)
    placement = placement or TensorRT()
    placed, _ = placement.place(graph)
    done = equalize(graph, ChannelSurvey(samples), placement, [item.node for item in placed])
    return onnx.shape_inference.infer_shapes(graph.to_model()), done


@pytest.mark.parametrize("target", PLACEMENTS)
def test_the_float_results_stay(target, uneven_model, samples, run_model):
    after, done = equalized(uneven_model, samples, PLACEMENTS[target]())
    assert done or target == "onnxruntime"
    for feeds in samples:
        expected = run_model(uneven_model, feeds)["y"]
        np.testing.assert_allclose(run_model(after, feeds)["y"], expected, rtol=1e-3, atol=1e-4)


def test_any_positive_factors_cancel_out(uneven_model, samples, run_model):
    graph = Graph(uneven_model)
    groups = find_scale_groups(graph)
    assert [group.readers for group in groups] == [["depthwise"], ["grouped", "upsample"], ["head"]]
    rng = np.random.default_rng(3)
    for group in groups:
        rescale(graph, group, rng.uniform(0.1, 10, 8))
    expected = run_model(uneven_model, samples[0])["y"]
    got = run_model(graph.to_model(), samples[0])["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_uneven_channels_gain_several_decibels(uneven_model, samples):
    """By themselves: weights that make up for their inputs mend a part of the same."""

    def sqnr(is_equalized):
        settings = QuantizeSettings(equalization=is_equalized, input_correction=False)
        return quantize_model(uneven_model, samples, settings).outputs_db["y"]

    assert sqnr(True) > sqnr(False) + 3


@pytest.mark.parametrize(("readers", "is_even"), [("depthwise", True), ("dense", False)])
def test_a_depthwise_reader_takes_up_the_whole_factor(
    readers, is_even, make_model, samples, run_model
):
    rng = np.random.default_rng(0)
    loudness = np.geomspace(0.1, 1, 8).astype(np.float32).reshape(-1, 1, 1, 1)
    group = 8 if readers == "depthwise" else 1
    weights = {
        "w0": rng.standard_normal((8, 3, 1, 1)).astype(np.float32) * loudness,
        "w1": rng.standard_normal((8, 8 // group, 3, 3)).astype(np.float32),
        "w2": rng.standard_normal((4, 8, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem"),
        helper.make_node("Relu", ["c0"], ["r0"], "relu"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], readers, group=group),
        helper.make_node("Sigmoid", ["c1"], ["a"], "sigmoid"),
        helper.make_node("Conv", ["a", "w2"], ["y"], "head"),
    ]
    many = ([*samples] * ENOUGH_SAMPLES)[:ENOUGH_SAMPLES]
    after, done = equalized(make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"]), many)
    assert len(done) == 1
    after.graph.output.append(onnx.ValueInfoProto(name="r0"))
    seen = np.concatenate([run_model(after, feeds)["r0"] for feeds in samples])
    peaks = seen.max(axis=(0, 2, 3))
    assert (peaks.max() < 1.5 * peaks.min()) == is_even


def test_even_channels_are_left_alone(make_model, samples):
    weights = {
        "w0": np.ones((8, 3, 3, 3), np.float32),
        "w1": np.random.default_rng(1).standard_normal((4, 8, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem", pads=[1] * 4),
        helper.make_node("Conv", ["c0", "w1"], ["y"], "head"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])
    after, done = equalized(model, samples)
    assert done == []
    assert after.graph.initializer == Graph(model).to_model().graph.initializer


@pytest.mark.parametrize("op_type", ["Sigmoid", "Tanh", "HardSwish"])
def test_what_is_not_homogeneous_ends_a_group(op_type, make_model, samples):
    weights = {"w0": np.ones((4, 3, 1, 1), np.float32), "w1": np.ones((2, 4, 1, 1), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"]),
        helper.make_node(op_type, ["c0"], ["a"]),
        helper.make_node("Conv", ["a", "w1"], ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])
    assert find_scale_groups(Graph(model)) == []


def test_an_output_of_the_network_is_never_rescaled(make_model):
    weights = {"w0": np.ones((4, 3, 1, 1), np.float32), "w1": np.ones((2, 4, 1, 1), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"]),
        helper.make_node("Relu", ["c0"], ["a"]),
        helper.make_node("Conv", ["a", "w1"], ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["a", "y"])
    assert find_scale_groups(Graph(model)) == []


@pytest.fixture
def make_normed(make_model):
    """Returns a network in which no layer can take up the norm that a layer reads."""

    def make(nodes, **weights):
        rng = np.random.default_rng(0)
        constants = {
            "w0": rng.standard_normal((8, 3, 1, 1)).astype(np.float32),
            "gains": np.geomspace(0.1, 4, 8).astype(np.float32),
            "offsets": rng.uniform(-0.2, 0.2, 8).astype(np.float32),
            "zeros": np.zeros(8, np.float32),
            "ones": np.ones(8, np.float32),
            "w1": rng.standard_normal((4, 8, 3, 3)).astype(np.float32),
        }
        around = [
            helper.make_node("Conv", ["x", "w0"], ["c0"], "stem"),
            helper.make_node("HardSwish", ["c0"], ["h"], "act"),
            *nodes,
            helper.make_node("Conv", ["r", "w1"], ["y"], "head"),
        ]
        return make_model(around, constants | weights, {"x": (1, 3, 12, 16)}, ["y"])

    return make


NORMS = {
    "instance": [helper.make_node("InstanceNormalization", ["h", "gains", "offsets"], ["n"], "n")],
    "batch": [
        helper.make_node(
            "BatchNormalization", ["h", "gains", "offsets", "zeros", "ones"], ["n"], "n"
        )
    ],
    "spelled": [
        helper.make_node("Mul", ["h", "gains3"], ["m"], "m"),
        helper.make_node("Add", ["m", "offsets3"], ["n"], "n"),
    ],
}


@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_writes_channels_as_a_layer_does(norm, make_normed, samples, run_model):
    columns = {
        f"{name}3": np.asarray(values, np.float32).reshape(8, 1, 1)
        for name, values in (("gains", np.geomspace(0.1, 4, 8)), ("offsets", np.full(8, 0.1)))
    }
    relu = helper.make_node("Relu", ["n"], ["r"], "relu")
    model = make_normed([*NORMS[norm], relu], **columns)
    many = ([*samples] * ENOUGH_SAMPLES)[:ENOUGH_SAMPLES]
    after, done = equalized(model, many)
    assert [line.split(",")[0] for line in done] == ["equalized 8 channels into head"]
    for feeds in samples:
        expected = run_model(model, feeds)["y"]
        np.testing.assert_allclose(run_model(after, feeds)["y"], expected, rtol=1e-3, atol=1e-4)

    def sqnr(is_equalized):
        settings = QuantizeSettings(equalization=is_equalized, input_correction=False)
        return quantize_model(model, many, settings).outputs_db["y"]

    assert sqnr(True) > sqnr(False) + 1


def test_a_norm_that_is_read_before_its_activation_too_is_left_alone(make_normed):
    nodes = [
        *NORMS["instance"],
        helper.make_node("Sigmoid", ["n"], ["g"], "gate"),
        helper.make_node("Mul", ["n", "g"], ["r"], "gated"),
    ]
    assert find_scale_groups(Graph(make_normed(nodes))) == []


@pytest.mark.parametrize(
    ("mode", "pads", "value", "passes"),
    [
        ("reflect", [0, 0, 1, 1, 0, 0, 1, 1], 0.0, True),
        ("edge", [0, 0, 1, 1, 0, 0, 1, 1], 0.0, True),
        ("constant", [0, 0, 1, 0, 0, 0, 0, 1], 0.0, True),
        ("constant", [0, 0, 1, 1, 0, 0, 1, 1], 0.5, False),
        ("constant", [0, 0, 1, 1, 0, 2, 1, 1], 0.0, False),
    ],
)
def test_padding_passes_factors_unless_it_adds_channels_or_values(
    mode, pads, value, passes, make_model, samples, run_model
):
    inputs = 8 + pads[5]
    weights = {
        "w0": np.random.default_rng(0).standard_normal((8, 3, 1, 1)).astype(np.float32),
        "pads": np.array(pads, np.int64),
        "value": np.array(value, np.float32),
        "w1": np.random.default_rng(1).standard_normal((4, inputs, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem"),
        helper.make_node("Relu", ["c0"], ["r0"], "relu"),
        helper.make_node("Pad", ["r0", "pads", "value"], ["p0"], "pad", mode=mode),
        helper.make_node("Conv", ["p0", "w1"], ["y"], "head"),
    ]
    graph = Graph(make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"]))
    expected = run_model(graph.to_model(), samples[0])["y"]
    groups = find_scale_groups(graph)
    assert [group.readers for group in groups] == ([["head"]] if passes else [])
    for group in groups:
        rescale(graph, group, np.geomspace(0.1, 10, 8))
    got = run_model(graph.to_model(), samples[0])["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
