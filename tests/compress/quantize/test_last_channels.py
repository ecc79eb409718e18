"""What OpenVINO misreads behind a product of matrices is guarded."""

import numpy as np
import pytest
from onnx import helper

from artifacts.openvino_guard import GUARD_SUFFIX, remove_guards
from compress.quantize.placement import openvino_forms
from compress.quantize.placement.last_channels import guard_last_channels

SHAPE = (1, 12, 16)
READERS = {
    "Unsqueeze": ({}, {"axes": np.array([3])}),
    "Reshape": ({}, {"shape": np.array([1, 12, 24, 1, 1])}),
    "MaxPool": ({"kernel_shape": [3], "pads": [1, 1]}, {}),
    "AveragePool": ({"kernel_shape": [2], "strides": [2]}, {}),
    "Resize": ({"mode": "nearest"}, {"roi": "", "scales": np.array([1, 1, 2], np.float32)}),
}


@pytest.fixture
def read_product(make_model):
    """A product of matrices, a factor, what reads that, and an activation."""

    def make(reader, *, between="Mul", layer="MatMul", bias=False):
        rng = np.random.default_rng(0)
        spread = np.exp(rng.standard_normal(24)).astype(np.float32)
        attributes, constants = READERS[reader]
        weights = {
            "w": rng.standard_normal((16, 24)).astype(np.float32) * spread,
            "k": rng.standard_normal((12, 12, 3)).astype(np.float32),
            "b": np.ones(24, np.float32),
            "factor": np.array(0.7, np.float32),
            **{name: value for name, value in constants.items() if isinstance(value, np.ndarray)},
        }
        operands = ["biased" if bias else "p", *(["factor"] if between == "Mul" else [])]
        constants = [name if name in weights else "" for name in constants]
        convolution = helper.make_node("Conv", ["x", "k"], ["p"], "layer", pads=[1, 9])
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["p"], "layer")
            if layer == "MatMul"
            else convolution,
            helper.make_node("Add", ["p", "b"], ["biased"], "bias"),
            helper.make_node(between, operands, ["n"], "between"),
            helper.make_node(reader, ["n", *constants], ["v"], "reader", **attributes),
            helper.make_node("Softplus", ["v"], ["y"], "softplus"),
        ]
        return make_model(nodes, weights, {"x": SHAPE}, ["y"])

    return make


@pytest.fixture
def sample():
    return np.random.default_rng(1).standard_normal(SHAPE, np.float32)


@pytest.mark.parametrize("reader", READERS)
def test_a_guard_changes_nothing_and_can_be_taken_out(reader, read_product, rewrite, sample):
    done, graph = rewrite(read_product(reader), sample, guard_last_channels)
    assert done == ["reader"]
    model = graph.to_model()
    (guard,) = (node for node in model.graph.node if node.name.endswith(GUARD_SUFFIX))
    assert guard.input[0] == "n"
    assert len(remove_guards(model).graph.node) == len(model.graph.node) - 1


def test_two_readers_share_a_guard(make_model, rewrite, sample):
    weights = {"w": np.ones((16, 24), np.float32), "axes": np.array([3])}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Unsqueeze", ["p", "axes"], ["u"], "one"),
        helper.make_node("Unsqueeze", ["p", "axes"], ["v"], "other"),
        helper.make_node("Add", ["u", "v"], ["y"], "add"),
    ]
    model = make_model(nodes, weights, {"x": SHAPE}, ["y"])
    done, graph = rewrite(model, sample, guard_last_channels)
    assert done == ["one", "other"]
    assert len(graph.nodes) == len(nodes) + 1


@pytest.mark.parametrize(
    "other", [{"between": "Sigmoid"}, {"layer": "Conv"}, {"between": "Relu", "bias": True}]
)
def test_what_is_right_without_has_no_guard(other, read_product, rewrite, sample):
    assert rewrite(read_product("MaxPool", **other), sample, guard_last_channels)[0] == []


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
@pytest.mark.parametrize("reader", READERS)
def test_openvino_computes_what_a_quantized_file_says(
    reader, target, read_product, sample, quantize_and_compare
):
    result, agreement_db = quantize_and_compare(read_product(reader), sample, target)
    assert len(result.layers) == 1
    assert agreement_db > 60


@pytest.mark.parametrize("reader", READERS)
def test_openvino_gets_it_wrong_without_a_guard(
    reader, read_product, sample, quantize_and_compare, monkeypatch
):
    """The negative control; once it fails, OpenVINO is mended and the guard can go."""
    monkeypatch.setattr(openvino_forms, "guard_last_channels", lambda graph: [])
    model = read_product(reader)
    assert quantize_and_compare(model, sample, bias_correction=False)[1] < 10
