"""Layers behind HardSwish and the like read channels of similar ranges."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import TensorRT
from compress.quantize.prepare import prepare_network
from compress.quantize.repairs.channel_scales import scale_channels
from compress.quantize.repairs.equalization import ENOUGH_SAMPLES
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import simplify
from compress.quantize.streaming import StreamingPass
from export.lint.report import lint_model


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
    done = scale_channels(
        graph, ChannelSurvey(samples), placement, names, QuantizeSettings().weight_grids
    )
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
    (product,) = [node for node in after.graph.node if node.name.endswith("_scaled")]
    assert Graph(after).weights[product.input[1]].ndim == 4


@pytest.mark.parametrize("target", ["tensorrt-rtx", "openvino"])
def test_lint_finds_nothing_slow_in_a_product(target, make_mobile, samples):
    settings = QuantizeSettings(target=target.partition("-")[0])
    model = quantize_model(make_mobile(), samples, settings).model
    assert any(node.name.endswith("_scaled") for node in model.graph.node)
    report = lint_model(model, target=target)
    assert report.counts["warning"] == 0, report.findings


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


@pytest.fixture
def make_head(make_model):
    """Channels of unequal loudness behind SiLU, read by a dense layer as `way` says."""

    def make(way="directly", spread=16.0):
        rng = np.random.default_rng(1)
        loudness = np.geomspace(1, spread, 8).astype(np.float32).reshape(-1, 1, 1, 1)
        weights = {
            "w0": rng.standard_normal((8, 3, 1, 1)).astype(np.float32) * loudness,
            "w1": rng.standard_normal((4, 8, 3, 3)).astype(np.float32)
            / loudness.reshape(1, -1, 1, 1),
            "scales": np.array([1, 1, 2, 2], np.float32),
            "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        }
        nodes = [
            helper.make_node("Conv", ["x", "w0"], ["c0"], "expand"),
            helper.make_node("Sigmoid", ["c0"], ["s"], "sigmoid"),
            helper.make_node("Mul", ["c0", "s"], ["a"], "silu"),
        ]
        read = "a"
        if way in ("resized", "resized and pooled"):
            nodes.append(
                helper.make_node("Resize", ["a", "", "scales"], ["r"], "resize", mode="nearest")
            )
            read = "r"
        if way == "mirrored":
            nodes.append(helper.make_node("Pad", ["a", "pads"], ["r"], "pad", mode="reflect"))
            read = "r"
        nodes.append(helper.make_node("Conv", [read, "w1"], ["y"], "dense", pads=[1, 1, 1, 1]))
        outputs = ["y"]
        if way == "resized and pooled":
            nodes.append(helper.make_node("ReduceMean", ["a"], ["m"], "mean", axes=[2, 3]))
            outputs.append("m")
        return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, outputs)

    return make


@pytest.mark.parametrize("way", ["directly", "resized", "mirrored"])
def test_dense_layers_read_products_too(way, make_head, samples, run_model):
    model = make_head(way)
    after, (line,) = scaled(model, samples)
    assert line.startswith("scaled 8 channels of 'a' before dense")
    for feeds in samples:
        expected = run_model(model, feeds)["y"]
        np.testing.assert_allclose(run_model(after, feeds)["y"], expected, rtol=1e-3, atol=1e-4)

    def sqnr(is_equalized):
        settings = QuantizeSettings(target="openvino", equalization=is_equalized)
        return quantize_model(model, samples, settings).outputs_db["y"]

    assert sqnr(True) > sqnr(False) + 3


class Apart(TensorRT):
    """A target on which a product is a kernel of its own."""

    fuses_products = False


@pytest.mark.parametrize(
    ("placement", "spread", "is_scaled"),
    [(TensorRT(), 2.0, True), (Apart(), 2.0, False), (Apart(), 16.0, True)],
)
def test_a_product_that_may_be_a_kernel_has_to_bring_more(
    placement, spread, is_scaled, make_head, samples
):
    _, done = scaled(make_head(spread=spread), samples, placement)
    assert bool(done) == is_scaled


def test_what_others_read_behind_a_resize_keeps_its_scale(make_head, samples):
    _, done = scaled(make_head("resized and pooled"), samples)
    assert done == []


def test_a_product_before_a_resize_leaves_with_the_integers(make_head, samples, run_model):
    model = make_head("resized")
    prepared = prepare_network(model, samples, QuantizeSettings())
    assert any(line.startswith("scaled") for line in prepared.simplified)
    after = prepared.write_float()
    assert [node.op_type for node in after.graph.node].count("Mul") == 1
    expected = run_model(model, samples[0])["y"]
    np.testing.assert_allclose(run_model(after, samples[0])["y"], expected, rtol=1e-3, atol=1e-4)


def test_rows_behind_gelu_are_scaled_along_their_last_axis(make_model, samples, run_model):
    rng = np.random.default_rng(2)
    loudness = np.geomspace(1, 16, 12).astype(np.float32)
    weights = {
        "w0": rng.standard_normal((16, 12)).astype(np.float32) * loudness,
        "w1": rng.standard_normal((12, 5)).astype(np.float32) / loudness[:, None],
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["c0"], "expand"),
        helper.make_node("Gelu", ["c0"], ["a"], "gelu"),
        helper.make_node("MatMul", ["a", "w1"], ["y"], "shrink"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"], opset=20)
    after, (line,) = scaled(model, samples)
    assert line.startswith("scaled 12 channels of 'a' before shrink")
    for feeds in samples:
        expected = run_model(model, feeds)["y"]
        np.testing.assert_allclose(run_model(after, feeds)["y"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("operator", "attributes"), [("MaxPool", {"kernel_shape": [1, 2]}), ("Resize", {})]
)
def test_rows_that_are_pooled_along_their_channels_are_not_scaled(
    operator, attributes, make_model, samples
):
    """A product with one factor per channel fits only the pooled ones, which the layer reads."""
    rng = np.random.default_rng(0)
    width = 15 if operator == "MaxPool" else 32
    scales = np.array([1, 1, 1, 2], np.float32)
    weights = {"w": rng.standard_normal((width, 8)).astype(np.float32), "scales": scales}
    others = ["", "scales"] if operator == "Resize" else []
    nodes = [
        helper.make_node("HardSwish", ["x"], ["s"], "activation"),
        helper.make_node(operator, ["s", *others], ["p"], "pool", **attributes),
        helper.make_node("MatMul", ["p", "w"], ["y"], "product"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])
    loud = np.geomspace(1, 100, 16).astype(np.float32)
    louder = [{"x": item["x"] * loud} for item in samples]
    assert quantize_model(model, louder, QuantizeSettings()).outputs_db["y"] > 30
