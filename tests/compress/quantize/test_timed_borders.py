"""Layers whose results go back to float, on onnxruntime: a measurement decides about them."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings

FLOAT_MS, WITHOUT_MS = 30.0, 10.0


@pytest.fixture
def model(make_model):
    """Four layers, of which an ELU reads the second."""
    rng = np.random.default_rng(0)
    channels = (3, 8, 8, 8, 4)
    weights = {
        f"w{at}": rng.normal(0, 0.3, (channels[at + 1], channels[at], 3, 3)).astype(np.float32)
        for at in range(4)
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["b"], "border", pads=[1] * 4),
        helper.make_node("Elu", ["b"], ["e"], "elu"),
        helper.make_node("Conv", ["e", "w2"], ["c"], "third", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["s"]),
        helper.make_node("Conv", ["s", "w3"], ["y"], "last", pads=[1] * 4),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 16, 16)}, ["y"])


def pictures():
    rng = np.random.default_rng(1)
    return [{"x": rng.random((1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]


def clock(share, seen=None):
    """A machine on which INT8 takes 10 ms, and a share of it where the ELU reads integers."""

    def measure(models):
        if seen is not None:
            seen.append(len(models))
        return [_time(model, share) for model in models]

    return measure


def _time(model, share):
    made = {name: node.op_type for node in model.graph.node for name in node.output}
    if "QuantizeLinear" not in made.values():
        return FLOAT_MS
    return WITHOUT_MS * (share if _reads_integers(model, "Elu") else 1.0)


def _reads_integers(model, operator):
    made = {name: node.op_type for node in model.graph.node for name in node.output}
    readers = [node for node in model.graph.node if node.op_type == operator]
    return any(made.get(node.input[0]) == "DequantizeLinear" for node in readers)


@pytest.mark.parametrize(
    ("prefer", "share", "taken"),
    [(None, 0.9, True), (None, 0.97, None), (None, 1.2, None), ("speed", 0.97, True)],
)
def test_they_compute_in_integers_where_that_saves_time(model, prefer, share, taken):
    settings = QuantizeSettings(target="onnxruntime", prefer=prefer)
    result = quantize_model(model, pictures(), settings, clock=clock(share))
    assert result.settings.integer_borders is taken
    assert _reads_integers(result.model, "Elu") == (taken is True)


@pytest.mark.parametrize("integer_borders", [True, False])
def test_who_says_it_is_not_overruled(model, integer_borders):
    seen = []
    settings = QuantizeSettings(target="onnxruntime", integer_borders=integer_borders)
    measure = clock(1.2 if integer_borders else 0.5, seen)
    result = quantize_model(model, pictures(), settings, clock=measure)
    assert _reads_integers(result.model, "Elu") is integer_borders
    assert len(seen) == 1


def test_a_layer_that_makes_an_output_stays_in_float(model):
    settings = QuantizeSettings(target="onnxruntime", integer_borders=True)
    result = quantize_model(model, pictures(), settings)
    reasons = {item.node: item.reason for item in result.declined}
    assert "is an output of the network" in reasons["last"]


def test_what_a_decoder_reads_of_a_last_layer_is_not_rounded(make_model):
    """The logarithm of a depth: what pictures brought that calibrated nothing would be clipped."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(0, 0.1, (16, 16, 3, 3)).astype(np.float32),
        "w1": rng.normal(0, 0.3, (1, 16, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Elu", ["a"], ["e"], "inner"),
        helper.make_node("Conv", ["e", "w1"], ["d"], "last", pads=[1] * 4),
        helper.make_node("Exp", ["d"], ["y"], "decoder"),
    ]
    depth = make_model(nodes, weights, {"x": (1, 16, 16, 16)}, ["y"])
    data = [{"x": rng.random((1, 16, 16, 16)).astype(np.float32)} for _ in range(4)]
    settings = QuantizeSettings(target="onnxruntime", integer_borders=True)
    result = quantize_model(depth, data, settings)
    assert _reads_integers(result.model, "Elu")
    assert not _reads_integers(result.model, "Exp")


def test_a_network_without_such_layers_is_not_timed_for_them(make_model):
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 0.3, (8, 8, 3, 3)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"], "last", pads=[1] * 4),
    ]
    plain = make_model(nodes, weights, {"x": (1, 8, 16, 16)}, ["y"])
    data = [{"x": np.random.default_rng(1).random((1, 8, 16, 16)).astype(np.float32)}] * 4
    seen = []
    quantize_model(plain, data, QuantizeSettings(target="onnxruntime"), clock=clock(0.5, seen))
    assert len(seen) == 1
