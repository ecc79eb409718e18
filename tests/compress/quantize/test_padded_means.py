"""Means that count zeros around a picture are guarded where their pool would read integers."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.placement import openvino_forms
from compress.quantize.placement.padded_means import guard_padded_means

SHAPE = (1, 3, 16, 16)
MOVES = {
    "MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "Transpose": {"perm": [0, 1, 3, 2]},
}


@pytest.fixture
def pool(make_model):
    """A Conv, an activation, what moves it to a Conv and a pool, and a Conv behind that."""

    def make(move="MaxPool", *, activation="Identity", form="pads", counts=1):
        rng = np.random.default_rng(0)
        weights = {
            "w": rng.standard_normal((16, 3, 3, 3)).astype(np.float32),
            "b": rng.standard_normal(16).astype(np.float32),
            "w1": rng.standard_normal((8, 16, 1, 1)).astype(np.float32),
            "w2": rng.standard_normal((8, 16, 1, 1)).astype(np.float32),
            "border": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        }
        nodes = [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1] * 4),
            helper.make_node(activation, ["c"], ["a"], "activation"),
            helper.make_node(move, ["a"], ["m"], "move", **MOVES[move]),
            helper.make_node("Conv", ["m", "w1"], ["side"], "side"),
        ]
        window = {"kernel_shape": [3, 3], "count_include_pad": counts}
        if form == "Pad":
            nodes.append(helper.make_node("Pad", ["m", "border"], ["padded"], "pad"))
            nodes.append(helper.make_node("AveragePool", ["padded"], ["p"], "pool", **window))
        else:
            window["pads"] = [1] * 4
            nodes.append(helper.make_node("AveragePool", ["m"], ["p"], "pool", **window))
        nodes += [
            helper.make_node("Conv", ["p", "w2"], ["q"], "last"),
            helper.make_node("Add", ["q", "side"], ["y"], "sum"),
        ]
        return make_model(nodes, weights, {"x": SHAPE}, ["y"], opset=19)

    return make


@pytest.fixture
def sample():
    return np.random.default_rng(1).standard_normal(SHAPE, np.float32)


@pytest.mark.parametrize(
    ("options", "is_guarded"),
    [
        ({}, True),
        ({"move": "Transpose"}, True),
        ({"form": "Pad"}, True),
        ({"activation": "HardSwish"}, True),
        ({"activation": "Relu"}, False),
        ({"counts": 0}, False),
    ],
)
def test_pools_that_count_the_border_of_what_may_be_negative_are_guarded(
    options, is_guarded, pool, rewrite, sample
):
    assert rewrite(pool(**options), sample, guard_padded_means)[0] == ["pool"] * is_guarded


def test_what_a_pool_reads_of_no_moving_operator_is_read_in_float(make_model, rewrite, sample):
    window = {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}
    nodes = [
        helper.make_node("HardSwish", ["x"], ["a"], "activation"),
        helper.make_node("AveragePool", ["a"], ["y"], "pool", **window),
    ]
    model = make_model(nodes, {}, {"x": SHAPE}, ["y"], opset=19)
    assert rewrite(model, sample, guard_padded_means)[0] == []


CASES = [{}, {"move": "Transpose"}, {"form": "Pad"}]


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
@pytest.mark.parametrize("options", CASES)
def test_openvino_computes_what_a_quantized_file_says(
    options, target, pool, sample, quantize_and_compare
):
    assert quantize_and_compare(pool(**options), sample, target)[1] > 50


@pytest.mark.parametrize("options", CASES)
def test_openvino_pads_integers_with_another_number_without_a_guard(
    options, pool, sample, quantize_and_compare, monkeypatch
):
    """The negative control; once it fails, OpenVINO is mended and the guard can go."""
    monkeypatch.setattr(openvino_forms, "guard_padded_means", lambda graph: [])
    assert quantize_and_compare(pool(**options), sample)[1] < 30
