"""Convolutions without a bias get a tiny one where OpenVINO would turn their activation round."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.placement import openvino_forms
from compress.quantize.placement.tiny_biases import TINY, add_tiny_biases

SHAPE = (1, 8, 10, 10)
CHANNELS = 16
ACTIVATIONS = {"Relu": {}, "LeakyRelu": {"alpha": 0.1}}


@pytest.fixture
def negate(make_model):
    """A layer, its activation, a negative factor and another layer."""

    def make(layer, activation, factor, *, bias=None):
        rng = np.random.default_rng(0)
        shape = (CHANNELS, 8, 3, 3) if layer == "Conv" else (8, CHANNELS, 3, 3)
        weights = {
            "w": rng.standard_normal(shape).astype(np.float32),
            "f": -np.exp(rng.standard_normal((CHANNELS, 1, 1))).astype(np.float32),
            "one": np.ones(1, np.float32),
            "w2": rng.standard_normal((4, CHANNELS, 1, 1)).astype(np.float32),
        }
        if bias is not None:
            weights["b"] = np.full(CHANNELS, bias, np.float32)
        operands = {"Neg": ["a"], "Mul": ["a", "f"], "Sub": ["one", "a"]}[factor]
        nodes = [
            helper.make_node(
                layer, ["x", *(name for name in "wb" if name in weights)], ["c"], layer
            ),
            helper.make_node(
                activation, ["c"], ["a"], "activation", **ACTIVATIONS.get(activation, {})
            ),
            helper.make_node(factor, operands, ["n"], "factor"),
            helper.make_node("Conv", ["n", "w2"], ["y"], "last"),
        ]
        return make_model(nodes, weights, {"x": SHAPE}, ["y"])

    return make


@pytest.fixture
def sample():
    return np.random.default_rng(1).standard_normal(SHAPE, np.float32)


@pytest.mark.parametrize("bias", [None, 0.0])
@pytest.mark.parametrize("layer", ["Conv", "ConvTranspose"])
def test_a_layer_without_a_bias_gets_a_tiny_one(layer, bias, negate, rewrite, sample):
    done, graph = rewrite(negate(layer, "Relu", "Neg", bias=bias), sample, add_tiny_biases)
    assert done == [layer]
    added = graph.weights[graph.node(layer).input[2]]
    np.testing.assert_array_equal(added, np.full(CHANNELS, TINY, np.float32))


@pytest.mark.parametrize("other", [("Relu", 0.5), ("Sigmoid", None)])
def test_other_layers_stay(other, negate, rewrite, sample):
    activation, bias = other
    model = negate("Conv", activation, "Neg", bias=bias)
    assert rewrite(model, sample, add_tiny_biases)[0] == []


CASES = [
    (layer, activation, factor)
    for layer in ("Conv", "ConvTranspose")
    for activation in ACTIVATIONS
    for factor in ("Neg", "Mul")
] + [("ConvTranspose", "Relu", "Sub")]


BARE = {"bias_correction": False, "equalization": False}
"""Without the corrections that give layers a bias."""


@pytest.mark.parametrize("case", CASES)
def test_openvino_computes_what_a_quantized_file_says(case, negate, sample, quantize_and_compare):
    result, agreement_db = quantize_and_compare(negate(*case), sample, **BARE)
    assert len(result.layers) == 2
    assert agreement_db > 60


@pytest.mark.parametrize("case", CASES)
def test_openvino_turns_activations_round_without(
    case, negate, sample, quantize_and_compare, monkeypatch
):
    """The negative control; once it fails, OpenVINO is mended and the biases can go."""
    monkeypatch.setattr(openvino_forms, "add_tiny_biases", lambda graph: [])
    assert quantize_and_compare(negate(*case), sample, **BARE)[1] < 20
