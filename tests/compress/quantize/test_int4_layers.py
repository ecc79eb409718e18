from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.rounding import Nearest
from compress.quantize.search import int4_layers
from compress.quantize.search.int4_layers import choose_int8_weights
from compress.quantize.settings import QuantizeSettings
from tests.openvino_agreement import misreads_odd_rows

INT4 = QuantizeSettings(weights="int4", rounding=Nearest())


@pytest.fixture
def network():
    """Three layers in a row and one beside them; "narrow", a layer of few weights, costs most.

    Each of its rows has one weight far larger than the others, which 4 bits leave next to nothing
    of.
    """
    rng = np.random.default_rng(0)
    spiky = rng.normal(size=(16, 16, 1, 1)) / 4
    spiky[:, 0] = 8
    weights = {
        "first": rng.normal(size=(16, 3, 3, 3)) / 5,
        "narrow": spiky,
        "wide": rng.normal(size=(64, 16, 3, 3)) / 12,
        "beside": rng.normal(size=(64, 16, 3, 3)) / 12,
    }
    nodes = [
        helper.make_node("Conv", ["x", "first_w"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "narrow_w"], ["b"], "narrow"),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "wide_w"], ["y"], "wide"),
        helper.make_node("Conv", ["a", "beside_w"], ["z"], "beside"),
    ]
    return write_model(nodes, {f"{name}_w": value for name, value in weights.items()})


def write_model(nodes, weights):
    made = {output for node in nodes for output in node.output}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in ("y", "z")
            if name in made
        ],
        [
            numpy_helper.from_array(value.astype(np.float32), name)
            for name, value in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def pictures(count, seed=0):
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(1, 3, 16, 16)).astype(np.float32)} for _ in range(count)]


def mean_db(model, settings):
    result = quantize_model(model, pictures(4), settings)
    outputs = compare_models(model, result.model, pictures(3, seed=9))["outputs"]
    return np.mean([value["sqnr_db"] for value in outputs.values()])


def test_the_costliest_layer_keeps_int8_and_the_share_is_kept(network):
    settings = choose_int8_weights(network, pictures(4), INT4)
    assert "narrow" in settings.int8_weights
    stored = {item.name: int(np.prod(item.dims)) for item in network.graph.initializer}
    sizes = {node.name: stored[node.input[1]] for node in network.graph.node if node.name}
    kept = sum(sizes[name] for name in settings.int8_weights)
    assert 0 < kept <= 0.15 * sum(sizes.values())
    result = quantize_model(network, pictures(4), INT4)
    bits = {item.node: item.weight_bits for item in result.layers}
    assert {name for name, width in bits.items() if width == 8} == set(settings.int8_weights)
    assert result.settings.int8_weights == settings.int8_weights


def test_it_beats_the_usual_choice_of_the_first_layer(network):
    measured = mean_db(network, INT4)
    assert measured > mean_db(network, replace(INT4, int4_share=1)) + 2
    assert measured > mean_db(network, replace(INT4, int8_weights=("first",))) + 1


def test_a_share_of_0_is_int8_and_of_1_int4(network):
    everything = quantize_model(network, pictures(2), replace(INT4, int4_share=0.0))
    assert {item.weight_bits for item in everything.layers} == {8}
    nothing = quantize_model(network, pictures(2), replace(INT4, int4_share=1.0))
    assert {item.weight_bits for item in nothing.layers} == {4}


def test_layers_that_share_a_weight_go_together():
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "one"),
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Conv", ["n", "w"], ["b"], "other"),
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("Conv", ["c", "v"], ["y"], "wide", pads=[1, 1, 1, 1]),
    ]
    weights = {"w": rng.normal(size=(8, 3, 1, 1)), "v": rng.normal(size=(32, 8, 3, 3))}
    model = write_model(nodes, weights)
    settings = choose_int8_weights(model, pictures(4), INT4)
    assert settings.int8_weights == ("one", "other")
    stored = quantize_model(model, pictures(4), INT4).model
    kinds = [item.data_type for item in stored.graph.initializer if len(item.dims) == 4]
    assert sorted(kinds) == sorted([TensorProto.INT8, TensorProto.INT4])


@pytest.mark.parametrize("named", [(), ("wide",)])
def test_named_layers_are_taken_as_they_are(network, named):
    settings = choose_int8_weights(network, pictures(2), replace(INT4, int8_weights=named))
    assert settings.int8_weights == named


@pytest.fixture
def product():
    """Returns a function that makes a product of `rows` inputs, as a layer of some kind."""

    def make(operator, rows):
        rng = np.random.default_rng(0)
        shape = {"Conv": (16, rows, 1, 1), "Gemm": (16, rows), "MatMul": (rows, 16)}[operator]
        weights = {
            "first_w": rng.normal(size=(rows, 3, 1, 1)),
            "w": rng.normal(size=shape) / rows**0.5,
        }
        nodes = [helper.make_node("Conv", ["x", "first_w"], ["a"], "first")]
        if operator == "Conv":
            nodes.append(helper.make_node("Conv", ["a", "w"], ["b"], "product"))
            nodes.append(helper.make_node("Flatten", ["b"], ["y"], "last"))
            return write_model(nodes, weights)
        model = write_model(nodes, weights)
        tokens = numpy_helper.from_array(np.array([256, rows]), "tokens")
        model.graph.initializer.append(tokens)
        options = {"transB": 1} if operator == "Gemm" else {}
        model.graph.node.extend(
            [
                helper.make_node("Transpose", ["a"], ["t"], "turn", perm=[0, 2, 3, 1]),
                helper.make_node("Reshape", ["t", "tokens"], ["r"], "rows"),
                helper.make_node(operator, ["r", "w"], ["y"], "product", **options),
            ]
        )
        model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
        return onnx.shape_inference.infer_shapes(model)

    return make


@pytest.fixture
def all_int4():
    """INT4 wherever it can be, for OpenVINO."""
    return replace(INT4, int4_share=1.0, target="openvino")


@pytest.mark.parametrize("operator", ["Conv", "Gemm", "MatMul"])
@pytest.mark.parametrize("activations", ["int8", "float"])
def test_odd_rows_keep_int8_whatever_the_share(
    operator, activations, product, all_int4, agreement_db
):
    settings = replace(all_int4, activations=activations)
    for rows in (14, 15):
        result = quantize_model(product(operator, rows), pictures(4), settings)
        types = {item.name: item.data_type for item in result.model.graph.initializer}
        assert types["product_weight_quantized"] == (
            TensorProto.INT8 if rows % 2 else TensorProto.INT4
        )
        assert agreement_db(result.model, pictures(1)[0]) > 30


@pytest.mark.parametrize("operator", ["Conv", "Gemm", "MatMul"])
def test_openvino_misreads_odd_rows_of_int4(operator, product, all_int4, agreement_db, monkeypatch):
    """The negative control; once it fails, OpenVINO is mended and the rule can go."""
    monkeypatch.setattr(int4_layers, "misreads_int4", lambda node, weight: False)
    settings = replace(all_int4, activations="float")
    result = quantize_model(product(operator, 15), pictures(4), settings)
    is_misread = agreement_db(result.model, pictures(1)[0]) < 20
    assert is_misread == misreads_odd_rows()
