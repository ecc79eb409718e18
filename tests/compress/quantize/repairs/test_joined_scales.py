"""Channels get similar ranges through Split, Add, Concat, pooling and resizing."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import TensorRT
from compress.quantize.prepare import prepare_network
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

    def make(spread=16.0, outputs=("y",), activations=("HardSwish", "HardSwish")):
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
            helper.make_node(activations[0], ["c0"], ["s0"], "act0"),
            helper.make_node("Split", ["s0", "sizes"], ["a", "b"], "split", axis=1),
            helper.make_node("Conv", ["b", "w1"], ["c1"], "inner", pads=[1, 1, 1, 1]),
            helper.make_node(activations[1], ["c1"], ["s1"], "act1"),
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
    done = scale_joined(
        graph, ChannelSurvey(samples), TensorRT(), names, QuantizeSettings().weight_grids
    )
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


@pytest.mark.parametrize("activations", [("HardSwish", "HardSwish"), ("Relu", "LeakyRelu")])
@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_uneven_channels_gain_several_decibels(target, activations, make_block, samples):
    model = make_block(activations=activations)

    def sqnr(is_equalized):
        settings = QuantizeSettings(target=target, equalization=is_equalized)
        return quantize_model(model, samples, settings).outputs_db["y"]

    assert sqnr(True) > sqnr(False) + 3


@pytest.mark.parametrize(
    ("activations", "products"),
    [(("Relu", "LeakyRelu"), 0), (("HardSwish", "Relu"), 1), (("Relu", "HardSwish"), 1)],
)
def test_layers_divide_what_they_write_by_their_own_weights(
    activations, products, make_block, samples, run_model
):
    model = make_block(activations=activations)
    after, done = scaled(model, samples)
    assert len(done) == 1
    assert count_products(after) == products
    back = prepare_network(model, samples, QuantizeSettings()).write_float()
    assert count_products(back) == 0
    expected = run_model(model, samples[0])["y"]
    for changed in (after, back):
        got = run_model(changed, samples[0])["y"]
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_layers_that_share_a_weight_write_what_they_wrote(make_model):
    weights = {"w": np.ones((4, 4, 1, 1), np.float32), "v": np.ones((2, 8, 1, 1), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "one"),
        helper.make_node("Conv", ["a", "w"], ["b"], "other"),
        helper.make_node("Concat", ["a", "b"], ["j"], "join", axis=1),
        helper.make_node("Conv", ["j", "v"], ["y"], "last"),
    ]
    found = ChannelVariables.follow(Graph(make_model(nodes, weights, {"x": (1, 4, 6, 8)}, ["y"])))
    assert found.writers == {"last": "y"}
    assert set(found.of["j"].tolist()) <= found.pinned


@pytest.fixture
def make_moved(make_model):
    """A Conv, nodes that move what its ReLU wrote, and another Conv."""

    def make(moves, constants):
        rng = np.random.default_rng(1)
        loudness = np.geomspace(1, 16, 16).astype(np.float32)[:, None, None, None]
        inputs = 4 if moves[0].op_type == "DepthToSpace" else 16
        weights = {
            "w": rng.standard_normal((16, 3, 1, 1)).astype(np.float32) * loudness,
            "v": rng.standard_normal((4, inputs, 1, 1)).astype(np.float32),
        }
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], "first"),
            helper.make_node("Relu", ["c"], ["r"], "act"),
            *moves,
            helper.make_node("Conv", ["m", "v"], ["y"], "last"),
        ]
        return make_model(nodes, weights | constants, {"x": (1, 3, 12, 16)}, ["y"])

    return make


SHUFFLE = [
    helper.make_node("Reshape", ["r", "apart"], ["p"], "apart_"),
    helper.make_node("Transpose", ["p"], ["t"], "turn", perm=[0, 2, 1, 3, 4]),
    helper.make_node("Reshape", ["t", "whole"], ["m"], "whole_"),
]
ENLARGE = [helper.make_node("DepthToSpace", ["r"], ["m"], "enlarge", blocksize=2)]
SIZES = {"apart": np.array([1, 2, 8, 12, 16]), "whole": np.array([1, 16, 12, 16])}


@pytest.mark.parametrize(
    ("moves", "constants", "expected"),
    [
        (SHUFFLE, SIZES, np.arange(16).reshape(2, 8).T.reshape(-1)),
        (ENLARGE, {}, np.arange(4)),
    ],
)
def test_factors_follow_values_that_change_their_channels(
    moves, constants, expected, make_moved, samples, run_model
):
    model = make_moved(moves, constants)
    found = ChannelVariables.follow(Graph(model))
    written = found.of["c"]
    np.testing.assert_array_equal(found.of["m"], written[expected])
    assert found.pinned.isdisjoint(written.tolist())
    if len(expected) == 4:
        assert len(set(written.tolist())) == 4
    after, done = scaled(model, samples)
    assert len(done) == 1
    wanted, got = run_model(model, samples[0])["y"], run_model(after, samples[0])["y"]
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)


def test_moved_values_that_something_else_reads_are_pinned(make_moved):
    moves = [*SHUFFLE[:2], helper.make_node("Sigmoid", ["t"], ["s"], "bend")]
    moves.append(helper.make_node("Reshape", ["s", "whole"], ["m"], "whole_"))
    found = ChannelVariables.follow(Graph(make_moved(moves, SIZES)))
    assert set(found.of["c"].tolist()) <= found.pinned


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


def test_no_product_goes_where_openvino_would_misread_it(make_model, samples):
    """Means of products, group by group, as a stereo network joins them for every disparity."""
    rng = np.random.default_rng(0)
    loudness = np.tile(np.geomspace(1, 64, 4), 2).astype(np.float32)
    weights = {
        "w0": rng.standard_normal((16, 3, 3, 3), np.float32),
        "w1": rng.standard_normal((4, 8, 3, 3), np.float32) / loudness[:, None, None],
        "w2": rng.standard_normal((4, 4, 3, 3), np.float32) / loudness[:4, None, None],
        "groups": np.array([1, 4, 4, 10, 14], np.int64),
        "two": np.array([2], np.int64),
        "loud": np.repeat(loudness[:4], 4).reshape(1, 16, 1, 1),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], "features"),
        helper.make_node("Mul", ["c", "loud"], ["l"], "scales"),
        helper.make_node("Reshape", ["l", "groups"], ["g"], "group"),
        helper.make_node("ReduceMean", ["g"], ["m"], "mean", axes=[2], keepdims=0),
        helper.make_node("ReduceL2", ["g"], ["n"], "norm", axes=[2], keepdims=0),
        helper.make_node("Concat", ["m", "n"], ["j"], "join", axis=1),
        helper.make_node("Conv", ["j", "w1"], ["y"], "joined"),
        helper.make_node("ReduceSum", ["g", "two"], ["s"], "sum", keepdims=0),
        helper.make_node("Conv", ["s", "w2"], ["z"], "alone"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y", "z"])
    prepared = prepare_network(model, samples, QuantizeSettings())
    assert {"joined", "alone"} <= {item.node for item in prepared.quantized}
    assert not any("OpenVINO" in item.reason for item in prepared.declined)


def test_norms_in_front_of_a_join_take_the_factors_up_themselves(make_model, samples, run_model):
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.standard_normal((HALF, 3, 1, 1)).astype(np.float32),
        "w1": rng.standard_normal((HALF, 3, 1, 1)).astype(np.float32),
        "gains": np.geomspace(0.1, 4, HALF).astype(np.float32),
        "offsets": rng.uniform(-0.2, 0.2, HALF).astype(np.float32),
        "w2": rng.standard_normal((4, 2 * HALF, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "left"),
        helper.make_node("InstanceNormalization", ["c0", "gains", "offsets"], ["n0"], "norm"),
        helper.make_node("LeakyRelu", ["n0"], ["r0"], "act0"),
        helper.make_node("Conv", ["x", "w1"], ["c1"], "right"),
        helper.make_node("Relu", ["c1"], ["r1"], "act1"),
        helper.make_node("Concat", ["r0", "r1"], ["j"], "join", axis=1),
        helper.make_node("Conv", ["j", "w2"], ["y"], "head"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])
    after, done = scaled(model, samples)
    assert len(done) == 1
    assert "norm" in done[0]
    assert count_products(after) == 0
    for feeds in samples[:4]:
        expected, got = run_model(model, feeds)["y"], run_model(after, feeds)["y"]
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
