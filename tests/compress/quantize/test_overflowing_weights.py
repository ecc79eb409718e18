"""Weights that do not overflow on processors that add two products in 16 bits."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.paired_products import RUNTIMES, LayerProducts
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings


@pytest.fixture
def bright(make_model):
    """Weights and pictures without negative values, whose products add up without cancelling."""
    rng = np.random.default_rng(3)
    weights = {
        "w0": rng.uniform(0.5, 1.0, (16, 3, 3, 3)).astype(np.float32),
        "w1": rng.uniform(0.5, 1.0, (8, 16, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "first"),
        helper.make_node("Relu", ["c0"], ["r0"], "relu"),
        helper.make_node("Conv", ["r0", "w1"], ["y"], "second"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])
    pictures = [{"x": rng.uniform(0.6, 1.0, (1, 3, 12, 16)).astype(np.float32)} for _ in range(6)]
    return model, pictures


def quantize(bright, weights: str):
    model, pictures = bright
    return quantize_model(model, pictures, QuantizeSettings(target="openvino", weights=weights))


def test_all_weights_of_int7_fit_into_7_bits(bright) -> None:
    result = quantize(bright, "int7")
    constants = {tensor.name: tensor for tensor in result.model.graph.initializer}
    stored = [value for name, value in constants.items() if name.endswith("weight_quantized")]
    assert len(stored) == 2
    for tensor in stored:
        assert 32 <= np.frombuffer(tensor.raw_data, np.int8).max() <= 63
    assert [layer.weight_bits for layer in result.layers if layer.weight_bits] == [7, 7]


def test_pairs_keep_more_of_their_8_bits(bright) -> None:
    said = {name: quantize(bright, name).outputs_db["y"] for name in ("int8-pairs", "int7")}
    assert said["int8-pairs"] > said["int7"]


@pytest.mark.parametrize("target", ["tensorrt", "openvino", "onnxruntime"])
def test_pairs_of_a_picture_fit_on_each_runtime_whatever_the_target(target, bright) -> None:
    """Three channels are paired at one position by OpenVINO, across positions by onnxruntime."""
    model, pictures = bright
    settings = QuantizeSettings(target=target, weights="int8-pairs")
    graph = quantize_model(model, pictures, settings).model.graph
    constants = {item.name: item for item in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    counts = {}
    for node in (node for node in graph.node if node.op_type == "Conv"):
        maker = makers.get(node.input[1])
        if maker is None:
            continue
        stored = numpy_helper.to_array(constants[maker.input[0]])
        for runtime in RUNTIMES:
            layer = LayerProducts.of(node, stored.shape, runtime)
            counts[node.name, runtime] = layer.count_overflowing(stored)
    assert ("first", "onnxruntime") in counts
    assert not any(counts.values())


@pytest.mark.parametrize(
    ("weights", "is_right"), [("int8", False), ("int7", True), ("int8-pairs", True)]
)
def test_without_vnni_only_those_are_computed_as_the_file_says(
    weights, is_right, bright, run_model, run_limited_openvino
) -> None:
    model = quantize(bright, weights).model
    wanted = run_model(model, bright[1][0])["y"]
    got = run_limited_openvino("AVX2", model, bright[1][0])["y"]
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    assert bool(error < 0.01) is is_right


@pytest.mark.parametrize(
    ("target", "weights", "in_integers", "is_right"),
    [
        ("openvino", "int8-pairs", False, True),
        ("openvino", "int8-pairs", True, False),
        ("tensorrt", "int8-pairs", None, True),
        ("tensorrt", "int8", None, False),
    ],
)
def test_without_vnni_products_of_two_activations_overflow(
    target, weights, in_integers, is_right, make_model, run_model, run_limited_openvino
) -> None:
    """Why attention is not moved into integers there, however fast; see `timed_forms`."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"], "scores"),
        helper.make_node("Softmax", ["s"], ["p"], "softmax"),
        helper.make_node("MatMul", ["p", "v"], ["a"], "mixed"),
        helper.make_node("MatMul", ["a", "w"], ["y"], "last"),
    ]
    shapes = {"q": (1, 4, 20, 8), "k": (1, 4, 8, 20), "v": (1, 4, 20, 8)}
    constants = {"w": rng.standard_normal((8, 8)).astype(np.float32)}
    model = make_model(nodes, constants, shapes, ["y"])
    ranges = {"q": (1.0, 2.0), "k": (0.0, 2.0), "v": (-1.0, 1.0)}
    many = [
        {
            name: rng.uniform(*ranges[name], shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        for _ in range(6)
    ]
    settings = QuantizeSettings(target=target, weights=weights, integer_attention=in_integers)
    quantized = quantize_model(model, many, settings).model
    wanted = run_model(quantized, many[0])["y"]
    got = run_limited_openvino("AVX2", quantized, many[0])["y"]
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    assert bool(error < 0.01) is is_right


@pytest.mark.parametrize(("target", "fits"), [("openvino", True), ("tensorrt", False)])
def test_what_int4_leaves_in_int8_fits_where_it_may_have_to(target, fits, bright) -> None:
    model, pictures = bright
    settings = QuantizeSettings(target=target, weights="int4", int8_weights=("second",))
    graph = quantize_model(model, pictures, settings).model.graph
    (stored,) = (
        numpy_helper.to_array(item)
        for item in graph.initializer
        if item.data_type == TensorProto.INT8 and len(item.dims) == 4
    )
    assert (LayerProducts(stored.shape, 0).count_overflowing(stored) == 0) is fits
