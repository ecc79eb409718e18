"""Weights make up for what happened to their inputs, where other pictures agree."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.observers import Percentile
from compress.quantize.prepare import prepare_network
from compress.quantize.qparams import WEIGHT_GRIDS
from compress.quantize.repairs.input_correction import (
    ChannelInputs,
    InputColumns,
    correct_for_inputs,
    measure_moments,
)
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

PICTURES = 8
LAYERS = [
    ("Conv", (6, 4, 3, 2), 0, {"pads": [1, 1, 1, 1], "dilations": [2, 1]}),
    ("Conv", (6, 2, 3, 3), 0, {"group": 2, "strides": [2, 1]}),
    ("Conv", (4, 1, 3, 3), 0, {"group": 4}),
    ("ConvTranspose", (4, 5, 3, 3), 1, {"strides": [2, 2]}),
    ("ConvTranspose", (4, 3, 2, 3), 1, {"group": 2, "pads": [1, 0, 0, 1]}),
    ("MatMul", (4, 7), 1, {}),
    ("Gemm", (7, 4), 0, {"transB": 1}),
]


def make_inputs(wanted, got, *, is_centered=True):
    return ChannelInputs(
        samples=len(got),
        read=lambda sample: (wanted[sample], got[sample]),
        qparams=None,
        is_centered=is_centered,
        covered=1.0,
    )


@pytest.mark.parametrize(("operator", "shape", "axis", "attributes"), LAYERS)
def test_a_mix_of_channels_is_undone(operator, shape, axis, attributes, make_model, run_model):
    rng = np.random.default_rng(0)
    groups = attributes.get("group", 1)
    inside = (0.5 * np.eye(4 // groups) + 0.2) * np.ones((groups, 1, 1))
    mix = np.zeros((groups, 4 // groups, groups, 4 // groups))
    mix[np.arange(groups), :, np.arange(groups)] = inside
    is_product = operator in ("MatMul", "Gemm")
    size = (60, 4) if is_product else (1, 4, 12, 10)
    got = [rng.standard_normal(size).astype(np.float32) for _ in range(PICTURES)]
    equation = "ij,nj->ni" if is_product else "ij,njhw->nihw"
    wanted = [np.einsum(equation, mix.reshape(4, 4), q).astype(np.float32) for q in got]
    weight = rng.standard_normal(shape).astype(np.float32)
    node = helper.make_node(operator, ["x", "w"], ["y"], **attributes)

    inputs = make_inputs(wanted, got, is_centered=False)
    corrected = correct_for_inputs(node, weight, axis, WEIGHT_GRIDS["int8"], inputs)

    def run(constant, values):
        model = make_model([node], {"w": constant}, {"x": values.shape}, ["y"])
        return run_model(model, {"x": values})["y"]

    target = run(weight, wanted[0])
    before = np.abs(run(weight, got[0]) - target).max()
    assert np.abs(run(corrected, got[0]) - target).max() < 0.03 * before


@pytest.fixture
def columns() -> InputColumns:
    errors, inputs = np.random.default_rng(1).standard_normal((2, 1, 5, 400)).astype(np.float32)
    return InputColumns(errors=errors, inputs=inputs, pictures=np.repeat([0, 3], [100, 300]))


def test_the_mix_is_that_of_least_squares(columns):
    plain = columns.errors[0] + columns.inputs[0]
    wanted, *_ = np.linalg.lstsq(columns.inputs[0].T, plain.T, rcond=None)
    parts = [columns.of_pictures(columns.pictures == picture) for picture in (0, 3)]
    one, other = measure_moments(parts)
    moments = one.joined(other)
    mix = np.eye(5) + moments.find_change(moments.cross, 0.0)[0]
    np.testing.assert_allclose(mix, wanted.T, atol=1e-5)


@pytest.mark.parametrize("outputs", [3, 30])
def test_output_errors_are_those_of_each_picture(columns, outputs):
    rows, change = np.random.default_rng(2).standard_normal((2, 1, outputs, 5))
    error = rows @ (columns.errors + columns.inputs) - (rows + change) @ columns.inputs
    each = np.square(error).sum(axis=(0, 1))
    wanted = [each[:100].mean(), each[100:].mean()]
    got = columns.judge(rows)(change)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_one_loud_picture_does_not_decide_for_all():
    rng = np.random.default_rng(4)
    got = [rng.standard_normal((1, 8, 9, 9)).astype(np.float32) for _ in range(3 * PICTURES)]
    wanted = [q + 0.05 * rng.standard_normal(q.shape).astype(np.float32) for q in got]
    mix = rng.standard_normal((8, 8)).astype(np.float32)
    for sample in (0, 1):
        wanted[sample] = got[sample] + 5 * np.einsum("ij,njhw->nihw", mix, got[sample])
    weight = rng.standard_normal((6, 8, 1, 1)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    corrected = correct_for_inputs(node, weight, 0, WEIGHT_GRIDS["int8"], make_inputs(wanted, got))
    assert corrected is None or np.abs(corrected - weight).max() < 0.05 * np.abs(weight).max()


@pytest.mark.parametrize(
    ("pictures", "size", "gain"), [(3, 9, 1.5), (PICTURES, 9, 1.0), (PICTURES, 1, 1.5)]
)
def test_nothing_changes_without_pictures_errors_or_positions(pictures, size, gain):
    rng = np.random.default_rng(2)
    values = [rng.standard_normal((1, 16, size, size)).astype(np.float32) for _ in range(pictures)]
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    inputs = make_inputs([gain * value for value in values], values)
    weight = rng.standard_normal((3, 16, 1, 1)).astype(np.float32)
    assert correct_for_inputs(node, weight, 0, WEIGHT_GRIDS["int8"], inputs) is None


def test_errors_that_tell_nothing_of_the_inputs_are_left():
    rng = np.random.default_rng(3)
    values = rng.standard_normal((PICTURES, 1, 4, 9, 9)).astype(np.float32)
    noisy = values + 0.01 * rng.standard_normal(values.shape).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    inputs = make_inputs(values, noisy)
    weight = rng.standard_normal((3, 4, 3, 3)).astype(np.float32)
    assert correct_for_inputs(node, weight, 0, WEIGHT_GRIDS["int8"], inputs) is None


CLIPS = QuantizeSettings(target="openvino", observer=Percentile(percent=90.0), equalization=False)


@pytest.fixture
def chain(make_model):
    """Returns a network whose second convolution reads a loud channel, which is clipped."""
    rng = np.random.default_rng(4)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w1"], ["y"], "second", pads=[1, 1, 1, 1]),
    ]
    loudness = np.array([20] + [1] * 7, np.float32).reshape(8, 1, 1, 1)
    weights = {
        "w0": loudness * rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "w1": rng.standard_normal((6, 8, 3, 3)).astype(np.float32),
    }
    return make_model(nodes, weights, {"x": (1, 3, 16, 16)}, ["y"])


def pictures(seed):
    values = np.random.default_rng(seed).standard_normal((12, 1, 3, 16, 16))
    return [{"x": item.astype(np.float32)} for item in values]


def test_clipped_inputs_cost_less_on_pictures_never_seen(chain, run_model):
    noise = {}
    for corrects in (False, True):
        settings = replace(CLIPS, input_correction=corrects)
        result = quantize_model(chain, pictures(0), settings)
        errors = [
            run_model(result.model, feeds)["y"] - run_model(chain, feeds)["y"]
            for feeds in pictures(1)
        ]
        noise[corrects] = np.sum(np.square(errors))
        assert any("inputs corrected" in item.rounding for item in result.layers) == corrects
    assert noise[True] < 0.8 * noise[False]


@pytest.fixture
def long_chain(make_model):
    """Returns a network in which a loud channel is clipped and a quiet one tells of it.

    Only the third layer reads both, behind a ReLU that makes noise positive.
    """
    rng = np.random.default_rng(4)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w1", "b1"], ["c"], "second", group=8),
        helper.make_node("Relu", ["c"], ["d"], "relu_too"),
        helper.make_node("Conv", ["d", "w2"], ["y"], "third"),
    ]
    weights = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("w0", (8, 3, 3, 3)), ("w2", (6, 8, 1, 1)))
    }
    weights["w0"][0] = 20 * weights["w0"][1]
    weights |= {"w1": np.ones((8, 1, 1, 1), np.float32), "b1": np.full(8, -2, np.float32)}
    return make_model(nodes, weights, {"x": (1, 3, 16, 16)}, ["y"])


def measure_errors(candidate, model, run_model):
    """Returns the mean square of errors on unseen pictures, and the largest mean of a channel."""
    errors = np.stack(
        [run_model(candidate, feeds)["y"] - run_model(model, feeds)["y"] for feeds in pictures(1)]
    )
    return np.mean(np.square(errors)), np.abs(errors.mean(axis=(0, 1, 3, 4))).max()


def test_a_layer_in_float_makes_up_for_its_inputs_too(long_chain, run_model):
    settings = replace(CLIPS, keep_float=("third",))
    prepared = prepare_network(long_chain, pictures(0), settings)
    decisions = StreamingPass(prepared, settings).run(pictures(0))
    biases = {name: bias for name, bias in decisions.biases.items() if name != "third"}
    noise, mean = measure_errors(prepared.write_model(decisions), long_chain, run_model)
    weights_stay = prepared.write_model(replace(decisions, float_weights={}))
    assert noise < 0.5 * measure_errors(weights_stay, long_chain, run_model)[0]
    bias_stays = prepared.write_model(replace(decisions, biases=biases))
    assert mean < 0.5 * measure_errors(bias_stays, long_chain, run_model)[1]


def test_a_layer_in_float_behind_nothing_quantized_keeps_its_weights(long_chain):
    settings = replace(CLIPS, keep_float=("first",))
    prepared = prepare_network(long_chain, pictures(0), settings)
    decisions = StreamingPass(prepared, settings).run(pictures(0))
    assert not decisions.float_weights
    assert "first" not in decisions.biases


def test_a_layer_alone_makes_up_for_nothing_before_it(chain):
    samples = pictures(0)
    prepared = prepare_network(chain, samples, CLIPS)
    decisions = StreamingPass(prepared, CLIPS).run(samples)
    assert "second" in decisions.alone
    model = prepared.write_uncorrected(decisions, only=frozenset({"second"}))
    stored = {item.name: item for item in model.graph.initializer}
    (read,) = (node.input[1] for node in model.graph.node if node.name == "second")
    (source,) = (node.input[0] for node in model.graph.node if read in node.output)
    integers = np.frombuffer(stored[source].raw_data, np.int8).reshape(6, 8, 3, 3)
    np.testing.assert_array_equal(integers, decisions.alone["second"].integers)
    assert (decisions.alone["second"].integers != decisions.weights["second"].integers).any()


@pytest.mark.parametrize("pads", [0, 1])
def test_beside_padding_the_bias_does_not_make_up_for_the_mean(pads, make_model, run_model):
    """Channels far from zero that hardly vary: rounding hides them, and shrinks their weights."""
    rng = np.random.default_rng(0)
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[pads] * 4)
    weights = {"w": rng.normal(0, 0.2, (6, 4, 3, 3)).astype(np.float32)}
    model = make_model([node], weights, {"x": (1, 4, 12, 12)}, ["y"])
    seen = [{"x": rng.normal(6, 0.03, (1, 4, 12, 12)).astype(np.float32)} for _ in range(8)]
    errors = []
    for is_corrected in (False, True):
        settings = QuantizeSettings(input_correction=is_corrected)
        quantized = quantize_model(model, seen, settings).model
        differences = [run_model(quantized, x)["y"] - run_model(model, x)["y"] for x in seen]
        errors.append(float(np.mean(np.square(differences))))
    assert errors[1] < 1.05 * errors[0]
