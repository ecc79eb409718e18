"""Channels get similar ranges through Split, Add, Concat, pooling and resizing."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement import TensorRT
from compress.quantize.prepared import prepare_network
from compress.quantize.repairs.channel_variables import ChannelVariables
from compress.quantize.repairs.equalization import ENOUGH_SAMPLES
from compress.quantize.repairs.joined_scales import SUFFIX, scale_joined
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import simplify
from compress.quantize.streaming import StreamingPass

HALF = 8


@pytest.fixture
def samples(samples):
    """As many as it takes to be sure how loud a channel gets."""
    return [*samples] * (ENOUGH_SAMPLES // len(samples) + 1)


@pytest.fixture
def make_block(make_model):
    """A C2f block of a YOLO: half of the channels pass a residual block, and all are joined."""

    def make(spread=16.0, outputs=("y",)):
        rng = np.random.default_rng(0)
        loudness = np.geomspace(1, spread, HALF)
        both = np.concatenate([loudness, loudness[::-1]])

        def weight(out, inputs, kernel=1):
            values = rng.standard_normal((len(out), len(inputs), kernel, kernel))
            return (values * out[:, None, None, None] / inputs[None, :, None, None]).astype(
                np.float32
            )

        weights = {
            "w0": weight(both, np.ones(3)),
            "w1": weight(both[HALF:], both[HALF:], 3),
            "w2": weight(np.ones(4), np.concatenate([both, both[HALF:]])),
            "sizes": np.array([HALF, HALF], np.int64),
            "enlarged": np.array([1, 1, 2, 2], np.float32),
        }
        nodes = [
            helper.make_node("Conv", ["x", "w0"], ["c0"], "expand"),
            helper.make_node("HardSwish", ["c0"], ["s0"], "act0"),
            helper.make_node("Split", ["s0", "sizes"], ["a", "b"], "split", axis=1),
            helper.make_node("Conv", ["b", "w1"], ["c1"], "inner", pads=[1, 1, 1, 1]),
            helper.make_node("HardSwish", ["c1"], ["s1"], "act1"),
            helper.make_node("Add", ["b", "s1"], ["r"], "residual"),
            helper.make_node("Concat", ["a", "b", "r"], ["j"], "join", axis=-3),
            helper.make_node("Resize", ["j", "", "enlarged"], ["e"], "enlarge", mode="nearest"),
            helper.make_node("Conv", ["e", "w2"], ["y"], "shrink"),
        ]
        return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, list(outputs))

    return make


def scaled(model, samples):
    graph = Graph(model)
    simplify(graph)
    placed, _ = TensorRT().place(graph)
    names = [item.node for item in placed]
    done = scale_joined(graph, samples, TensorRT(), names, QuantizeSettings().weight_grids)
    return graph.to_model(), done


def count_products(model):
    return sum(SUFFIX in name for node in model.graph.node for name in node.input)


def test_each_channel_is_a_variable_that_sums_share_and_joins_pass_on(make_block):
    found = ChannelVariables.follow(Graph(make_block()))
    a, b = found.of["s0"][:HALF], found.of["s0"][HALF:]
    for tensor, expected in (
        ("a", a),
        ("b", b),
        ("s1", b),
        ("r", b),
        ("j", np.concatenate([a, b, b])),
        ("e", found.of["j"]),
    ):
        np.testing.assert_array_equal(found.of[tensor], expected)
    assert len(set(found.of["s0"].tolist())) == 2 * HALF
    assert found.pinned.isdisjoint(found.of["j"].tolist())
    (component,) = found.components()
    assert component.makers == ["s0", "s1"]
    assert component.readers == ["inner", "shrink"]


def test_what_the_user_reads_is_pinned_with_all_that_it_is_added_to(make_block):
    found = ChannelVariables.follow(Graph(make_block(outputs=("y", "r"))))
    assert set(found.of["s1"].tolist()) == set(found.of["b"].tolist()) <= found.pinned
    assert found.pinned.isdisjoint(found.of["a"].tolist())


@pytest.mark.parametrize("outputs", [("y",), ("y", "a")])
def test_the_float_results_stay(outputs, make_block, samples, run_model):
    model = make_block(outputs=outputs)
    after, done = scaled(model, samples)
    assert len(done) == 1
    assert count_products(after) == 2
    for feeds in samples[:4]:
        expected, got = run_model(model, feeds), run_model(after, feeds)
        for name in outputs:
            np.testing.assert_allclose(got[name], expected[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_uneven_channels_gain_several_decibels(target, make_block, samples):
    def sqnr(is_equalized):
        settings = QuantizeSettings(target=target, equalization=is_equalized)
        return quantize_model(make_block(), samples, settings).outputs_db["y"]

    assert sqnr(True) > sqnr(False) + 3


def test_even_channels_stay_as_they_are(make_block, samples):
    after, done = scaled(make_block(spread=1.0), samples)
    assert (done, count_products(after)) == ([], 0)


@pytest.mark.parametrize(("in_float", "products"), [((), 2), (("inner", "shrink"), 0)])
def test_products_leave_with_the_last_quantizer_behind_them(
    in_float, products, make_block, samples, run_model
):
    model = make_block()
    settings = QuantizeSettings()
    prepared = prepare_network(model, samples, settings)
    decisions = StreamingPass(prepared, settings).run(samples)
    kept = prepared.with_float_nodes(frozenset(in_float))
    assert count_products(kept.write_model(decisions)) == products
    plain = prepared.write_float()
    assert count_products(plain) == 0
    expected = run_model(model, samples[0])["y"]
    np.testing.assert_allclose(run_model(plain, samples[0])["y"], expected, rtol=1e-3, atol=1e-4)
