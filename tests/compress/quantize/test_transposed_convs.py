"""ConvTransposes on OpenVINO: which are quantized, and which integers they read."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from export.lint import lint_model
from tests.kernel_inputs import kernel_inputs

SETTINGS = QuantizeSettings(target="openvino")


@pytest.fixture
def decoder(make_model):
    """Returns a network whose LeakyReLU a ConvTranspose reads; other readers are optional."""

    def make(readers=(), *, channels=8, **window):
        rng = np.random.default_rng(0)
        groups = window.get("group", 1)
        kernel = window.pop("kernel", 4)
        shapes = {
            "w0": (channels, 3, 3, 3),
            "w1": (channels, 8 // groups, kernel, kernel),
            "w2": (4, channels, 1, 1),
        }
        weights = {
            name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()
        }
        weights |= {"b0": np.zeros(channels, np.float32), "b1": np.zeros(8, np.float32)}
        nodes = [
            helper.make_node("Conv", ["x", "w0", "b0"], ["c"], "first", pads=[1] * 4),
            helper.make_node("LeakyRelu", ["c"], ["a"], "slope", alpha=0.1),
            helper.make_node("ConvTranspose", ["a", "w1", "b1"], ["y"], "up", **window),
        ]
        others = {"Conv": ("a", "w2"), "Tanh": ("a",)}
        nodes += [helper.make_node(kind, others[kind], [kind], f"{kind}1") for kind in readers]
        return make_model(nodes, weights, {"x": (1, 3, 16, 24)}, ["y", *readers])

    return make


@pytest.fixture
def pictures():
    rng = np.random.default_rng(1)
    return [{"x": rng.normal(0, 1, (1, 3, 16, 24)).astype(np.float32)} for _ in range(3)]


def zero_points(model):
    """Returns the zero point with which each Conv and ConvTranspose reads integers, by name."""
    made = {node.output[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}
    stored = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    return {
        node.name: stored[made[node.input[0]].input[2]]
        for node in model.graph.node
        if node.op_type in ("Conv", "ConvTranspose") and node.input[0] in made
    }


@pytest.mark.parametrize("readers", [(), ("Conv",), ("Tanh",), ("Conv", "Tanh")])
def test_it_reads_integers_without_a_zero_point(decoder, pictures, readers):
    quantized = quantize_model(decoder(readers, strides=[2, 2]), pictures, SETTINGS).model
    found = zero_points(quantized)
    assert (found["up"].dtype, int(found["up"])) == (np.int8, 0)
    assert kernel_inputs(quantized) == [1]
    report = lint_model(quantized, target="openvino")
    assert "openvino-transposed" not in {finding.rule for finding in report.findings}


def test_a_conv_beside_it_keeps_its_zero_point(decoder, pictures):
    result = quantize_model(decoder(("Conv",), strides=[2, 2]), pictures, SETTINGS)
    beside = zero_points(result.model)["Conv1"]
    assert beside.dtype == np.uint8
    assert beside > 0
    assert "requantized 'a' before up, which takes no zero point" in result.simplified


def test_what_is_never_negative_is_shared(decoder, pictures):
    model = decoder(("Conv",), strides=[2, 2])
    model.graph.node[1].CopyFrom(helper.make_node("Relu", ["c"], ["a"], "relu"))
    result = quantize_model(model, pictures, SETTINGS)
    found = zero_points(result.model)
    assert found["up"].dtype == found["Conv1"].dtype == np.uint8
    assert int(found["up"]) == int(found["Conv1"]) == 0
    assert kernel_inputs(result.model) == [1]
    assert not [line for line in result.simplified if "requantized" in line]


@pytest.mark.parametrize(
    ("window", "trait"),
    [
        ({"strides": [2, 2], "group": 4}, "groups"),
        ({"strides": [2, 2], "group": 8}, "groups"),
        ({"strides": [4, 4]}, "strides of more than 3"),
        ({"strides": [3, 3], "kernel": 2}, "a kernel smaller than its stride"),
        ({"strides": [1, 1], "dilations": [2, 2]}, "dilation"),
    ],
)
def test_what_openvino_computes_in_float_stays(decoder, pictures, window, trait):
    model = decoder(**window)
    result = quantize_model(model, pictures, SETTINGS)
    reasons = {item.node: item.reason for item in result.declined}
    assert reasons["up"] == f"OpenVINO has no fast ConvTranspose in integers with {trait}"
    others = quantize_model(model, pictures, QuantizeSettings(target="tensorrt"))
    assert "up" in {item.node for item in others.layers}


def test_in_float_it_takes_nothing_from_its_neighbours(decoder, pictures):
    settings = QuantizeSettings(target="openvino", keep_float=("up",))
    result = quantize_model(decoder(("Conv",), strides=[2, 2]), pictures, settings)
    assert zero_points(result.model)["Conv1"] > 0
    assert not [line for line in result.simplified if "requantized" in line]
