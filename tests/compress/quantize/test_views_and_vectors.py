"""OpenVINO's own rules: one pair around Transposes and Reshapes, vectors read in float."""

import numpy as np
import openvino
import pytest
from onnx import helper, numpy_helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement import OpenVINO, TensorRT
from compress.quantize.settings import QuantizeSettings

CHANNELS, SIDE = 16, 6


@pytest.fixture
def mix_ffn(make_model):
    """Tokens, as a picture for a depthwise Conv, and tokens again (SegFormer's, PVTv2's)."""
    rng = np.random.default_rng(0)
    weights = {
        "up": rng.standard_normal((8, CHANNELS)).astype(np.float32),
        "kernel": rng.standard_normal((CHANNELS, 1, 3, 3)).astype(np.float32),
        "down": rng.standard_normal((CHANNELS, 8)).astype(np.float32),
        "picture": np.array([1, CHANNELS, SIDE, SIDE]),
        "line": np.array([1, CHANNELS, SIDE * SIDE]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["a"], "raise"),
        helper.make_node("Transpose", ["a"], ["b"], "columns", perm=[0, 2, 1]),
        helper.make_node("Reshape", ["b", "picture"], ["c"], "unfold"),
        helper.make_node(
            "Conv", ["c", "kernel"], ["d"], "depthwise", group=CHANNELS, pads=[1, 1, 1, 1]
        ),
        helper.make_node("Relu", ["d"], ["e"], "relu"),
        helper.make_node("Reshape", ["e", "line"], ["f"], "fold"),
        helper.make_node("Transpose", ["f"], ["g"], "rows", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["g", "down"], ["y"], "lower"),
    ]
    return make_model(nodes, weights, {"x": (1, SIDE * SIDE, 8)}, ["y"])


@pytest.fixture
def tokens():
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((1, SIDE * SIDE, 8)).astype(np.float32)} for _ in range(4)]


def read_pairs(model):
    """Returns the activations that have a Q/DQ pair."""
    graph = Graph(model)
    return {
        node.input[0]
        for node in graph.nodes
        if node.op_type == "QuantizeLinear" and node.input[0] not in graph.weights
    }


@pytest.mark.parametrize(
    ("target", "pairs"),
    [("openvino", {"x", "a", "e"}), ("tensorrt", {"x", "a", "c", "e", "g"})],
)
def test_openvino_has_one_pair_for_all_views_of_a_tensor(target, pairs, mix_ffn, tokens):
    quantized = quantize_model(mix_ffn, tokens, QuantizeSettings(target=target)).model
    assert read_pairs(quantized) == pairs


def test_views_of_what_was_joined_have_pairs(mix_ffn, tokens):
    """OpenVINO does not move a DQ past Concat and views to the layer behind."""
    turn = mix_ffn.graph.node[1]
    join = helper.make_node("Concat", ["a", "a"], ["joined"], "join", axis=1)
    turn.input[0] = "joined"
    mix_ffn.graph.node.insert(1, join)
    for name, size in (("picture", 2 * SIDE), ("line", 2 * SIDE * SIDE)):
        (shape,) = [item for item in mix_ffn.graph.initializer if item.name == name]
        values = numpy_helper.to_array(shape).copy()
        values[2] = size
        shape.CopyFrom(numpy_helper.from_array(values, name))
    del mix_ffn.graph.value_info[:]
    quantized = quantize_model(mix_ffn, tokens, QuantizeSettings(target="openvino")).model
    assert read_pairs(quantized) == {"x", "a", "c", "e"}


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_missing_pairs_would_change_nothing(symmetric, mix_ffn, tokens, run_model, monkeypatch):
    settings = QuantizeSettings(target="openvino", symmetric=symmetric)
    without = quantize_model(mix_ffn, tokens, settings).model
    monkeypatch.setattr(OpenVINO, "find_passed", TensorRT.find_passed)
    with_pairs = quantize_model(mix_ffn, tokens, settings).model
    assert len(read_pairs(with_pairs)) > len(read_pairs(without))
    for sample in tokens:
        one, other = (run_model(model, sample)["y"] for model in (without, with_pairs))
        np.testing.assert_array_equal(one, other)


def test_the_convolution_between_views_computes_in_integers(
    mix_ffn, tokens, run_model, exact_weights
):
    settings = QuantizeSettings(target="openvino", weights=exact_weights)
    quantized = quantize_model(mix_ffn, tokens, settings).model
    core = openvino.Core()
    read = core.read_model(quantized.SerializeToString())
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    kinds = {
        node.get_rt_info()["layerType"].astype(str): node.get_rt_info()["runtimePrecision"]
        for node in compiled.get_runtime_model().get_ordered_ops()
    }
    assert kinds["Convolution"].astype(str) in ("u8", "i8")
    wanted = run_model(quantized, tokens[0])["y"]
    got = compiled(tokens[0])[0]
    assert np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.fixture
def excited(make_model):
    """A Conv with squeeze-and-excite, and a Gemm that reads the mean."""
    rng = np.random.default_rng(2)
    weights = {
        "w": rng.standard_normal((12, 3, 3, 3)).astype(np.float32),
        "squeeze": rng.standard_normal((4, 12, 1, 1)).astype(np.float32),
        "excite": rng.standard_normal((12, 4, 1, 1)).astype(np.float32),
        "head": rng.standard_normal((5, 12)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "stem"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("GlobalAveragePool", ["b"], ["c"], "mean"),
        helper.make_node("Conv", ["c", "squeeze"], ["d"], "squeeze"),
        helper.make_node("Relu", ["d"], ["e"], "relu_2"),
        helper.make_node("Conv", ["e", "excite"], ["f"], "excite"),
        helper.make_node("Sigmoid", ["f"], ["g"], "gate"),
        helper.make_node("Mul", ["b", "g"], ["h"], "gated"),
        helper.make_node("GlobalAveragePool", ["h"], ["i"], "mean_2"),
        helper.make_node("Flatten", ["i"], ["j"], "flat"),
        helper.make_node("Gemm", ["j", "head"], ["y"], "head", transB=1),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


@pytest.fixture
def quantize_excited(excited, samples):
    """Quantizes it; returns what is read in integers, and the small layers of integer weights."""

    def quantize(target, **settings):
        found = quantize_model(excited, samples, QuantizeSettings(target=target, **settings)).model
        graph = Graph(found)
        stored = [
            name
            for name in ("squeeze", "excite", "head")
            if graph.producer(graph.node(name).input[1]) is not None
        ]
        return read_pairs(found), stored

    return quantize


def test_small_layers_of_one_vector_have_integer_weights_only(quantize_excited, monkeypatch):
    layers = ["squeeze", "excite", "head"]
    assert quantize_excited("openvino") == ({"x"}, layers[:-1])
    monkeypatch.setattr("compress.quantize.placement.last_layers.MOST_WORK", 0.0)
    assert quantize_excited("openvino") == ({"x"}, layers)
    monkeypatch.setattr("compress.quantize.placement.vector_layers.MOST_WEIGHTS", 50)
    assert quantize_excited("openvino") == ({"x", "i"}, layers)


def test_small_layers_of_one_vector_stay_in_float_for_tensorrt(quantize_excited, monkeypatch):
    """But where size is what counts."""
    layers = ["squeeze", "excite", "head"]
    assert quantize_excited("tensorrt") == ({"x"}, [])
    assert quantize_excited("tensorrt", weights="int4")[1] == layers
    monkeypatch.setattr("compress.quantize.placement.vector_layers.MOST_WEIGHTS", 50)
    monkeypatch.setattr("compress.quantize.placement.last_layers.MOST_WORK", 0.0)
    assert quantize_excited("tensorrt") == ({"x", "i", "j"}, ["head"])


def test_a_network_of_vectors_alone_computes_in_integers(make_model):
    """They are its work then, as in a policy of linear layers."""
    rng = np.random.default_rng(3)
    weights = {name: rng.standard_normal((8, 8)).astype(np.float32) for name in ("v", "w")}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MatMul", ["b", "w"], ["y"], "second"),
    ]
    model = make_model(nodes, weights, {"x": (1, 8)}, ["y"])
    samples = [{"x": rng.standard_normal((1, 8)).astype(np.float32)} for _ in range(4)]
    settings = QuantizeSettings(target="openvino", equalization=False)
    assert read_pairs(quantize_model(model, samples, settings).model) == {"x", "b"}
