"""Layers that no other follows stay in float where they do next to nothing."""

from functools import partial

import numpy as np
import pytest
from onnx import helper

from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.placement import PLACEMENTS, TensorRT, last_layers
from compress.quantize.settings import QuantizeSettings

SHAPE = (1, 8, 16, 16)


@pytest.fixture
def make_heads(make_model):
    """A trunk of two Convs, two maps from one hidden layer, and a Gemm that reads the mean."""

    def make(channels):
        rng = np.random.default_rng(0)
        shapes = {"w": (128, 8, 3, 3), "v": (64, 128, 3, 3), "u": (16, 64, 1, 1)}
        shapes |= {"a": (channels, 16, 1, 1), "b": (1, 16, 1, 1), "g": (64, 3)}
        weights = {
            name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
            for name, shape in shapes.items()
        }
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], "first", pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["d"], "relu"),
            helper.make_node("Conv", ["d", "v"], ["e"], "second", pads=[1] * 4),
            helper.make_node("Relu", ["e"], ["f"], "relu_2"),
            helper.make_node("Conv", ["f", "u"], ["h"], "hidden"),
            helper.make_node("Relu", ["h"], ["i"], "relu_3"),
            helper.make_node("Conv", ["i", "a"], ["many"], "many"),
            helper.make_node("Conv", ["i", "b"], ["one"], "one"),
            helper.make_node("GlobalAveragePool", ["f"], ["m"], "mean"),
            helper.make_node("Flatten", ["m"], ["n"], "flat"),
            helper.make_node("Gemm", ["n", "g"], ["vector"], "last"),
        ]
        return make_model(nodes, weights, {"x": SHAPE}, ["many", "one", "vector"])

    return make


@pytest.fixture
def pictures():
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal(SHAPE).astype(np.float32)} for _ in range(4)]


def find_last(model, pictures, **settings):
    result = quantize_model(model, pictures, QuantizeSettings(**settings))
    return [item.node for item in result.declined if item.reason == last_layers.REASON]


def test_layers_of_one_tensor_stay_in_float_together(make_heads, pictures):
    few, many = make_heads(2), make_heads(16)
    assert find_last(few, pictures, target="openvino") == ["many", "one", "last"]
    assert find_last(many, pictures, target="openvino") == ["last"]


def test_a_map_of_one_channel_takes_as_long_as_one_of_sixteen(make_heads, pictures, monkeypatch):
    """Two maps on 16 times 16 places of 16 channels: 131072 multiplications of 21508288."""
    model = make_heads(2)
    for share, kept in ((0.0060, ["last"]), (0.0062, ["many", "one", "last"])):
        monkeypatch.setattr(last_layers, "MOST_KERNEL_WORK", share)
        assert find_last(model, pictures, target="openvino") == kept


@pytest.mark.parametrize(
    "settings",
    [
        {"target": "onnxruntime"},
        {"target": "openvino", "weights": "int4"},
        {"target": "openvino", "activations": "float"},
    ],
)
def test_where_time_is_not_known_or_does_not_count_they_are_integers(
    settings, make_heads, pictures
):
    assert find_last(make_heads(2), pictures, **settings) == []


def test_many_weights_are_read_faster_as_integers(make_heads, pictures, monkeypatch):
    model = make_heads(2)
    for most, kept in ((191, ["many", "one"]), (192, ["many", "one", "last"])):
        monkeypatch.setattr(last_layers, "MOST_WEIGHTS", most)
        assert find_last(model, pictures, target="openvino") == kept


def test_tensorrt_wants_in_integers_what_moves_much(make_heads, pictures, monkeypatch):
    """What both maps read has 4096 values, 8192 bytes more; all layers move 197424 values."""
    model = make_heads(2)
    assert find_last(model, pictures, target="tensorrt") == []
    for share, kept in ((0.041, []), (0.042, ["many", "one"])):
        monkeypatch.setitem(PLACEMENTS, "tensorrt", partial(TensorRT, most_last_traffic=share))
        assert find_last(model, pictures, target="tensorrt") == kept


@pytest.mark.parametrize("target", ["openvino", "tensorrt"])
def test_speed_wants_them_in_integers(target):
    assert QuantizeSettings(target=target).placement.keeps_last_in_float
    assert not QuantizeSettings(target=target, prefer="speed").placement.keeps_last_in_float


def test_their_outputs_are_better(make_heads, pictures, monkeypatch):
    model = make_heads(2)

    def measure():
        result = quantize_model(model, pictures, QuantizeSettings(target="openvino"))
        outputs = compare_models(model, result.model, pictures)["outputs"]
        return {name: figures["sqnr_db"] for name, figures in outputs.items()}

    kept = measure()
    monkeypatch.setattr(last_layers, "MOST_WORK", 0.0)
    rounded = measure()
    assert all(kept[name] > rounded[name] for name in ("many", "one", "vector"))
