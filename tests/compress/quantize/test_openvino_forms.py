"""Operators in the form that OpenVINO's kernels take give the same results."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement.openvino_forms import (
    convolve_pools,
    write_forms,
    write_swish_by_tanh,
)
from compress.quantize.settings import QuantizeSettings


def operators(graph):
    return [node.op_type for node in graph.nodes]


@pytest.fixture
def picture():
    return np.random.default_rng(0).normal(0, 6, (1, 4, 5, 6)).astype(np.float32)


@pytest.mark.parametrize("attributes", [{}, {"alpha": 1 / 6, "beta": 0.4}])
def test_hard_sigmoid_becomes_a_clip(attributes, make_model, rewrite, picture):
    node = helper.make_node("HardSigmoid", ["x"], ["y"], "gate", **attributes)
    model = make_model([node], {}, {"x": picture.shape}, ["y"])
    done, graph = rewrite(model, picture, write_forms)
    assert operators(graph) == ["Mul", "Add", "Clip"]
    assert done == ["wrote HardSigmoid as Clip: gate"]


def test_slopes_that_are_shared_or_of_a_lower_rank_become_own_ones(make_model, rewrite, picture):
    rng = np.random.default_rng(1)
    weights = {
        "low": rng.random((4, 1, 1)).astype(np.float32),
        "full": rng.random((1, 4, 1, 1)).astype(np.float32),
        "one": np.float32([[[0.2]]]),
    }
    nodes = [
        helper.make_node("PRelu", ["x", "low"], ["a"], "first"),
        helper.make_node("PRelu", ["a", "low"], ["b"], "second"),
        helper.make_node("PRelu", ["b", "full"], ["c"], "third"),
        helper.make_node("Mul", ["low", "c"], ["d"], "scale"),
        helper.make_node("PRelu", ["d", "one"], ["y"], "last"),
    ]
    model = make_model(nodes, weights, {"x": picture.shape}, ["y"])
    _, graph = rewrite(model, picture, write_forms)
    slopes = [node.input[1] for node in graph.nodes[:3]] + [graph.nodes[3].input[0]]
    assert len(set(slopes)) == len(slopes)
    assert {graph.weights[name].shape for name in slopes} == {(1, 4, 1, 1)}
    assert slopes[2] == "full"
    assert graph.nodes[4].input[1] == "one"


def test_constants_that_are_not_per_channel_stay(make_model, picture):
    weights = {"row": np.ones(6, np.float32), "map": np.ones((5, 6), np.float32)}
    nodes = [
        helper.make_node("Add", ["x", "row"], ["a"]),
        helper.make_node("Mul", ["a", "map"], ["y"]),
    ]
    graph = Graph(make_model(nodes, weights, {"x": picture.shape}, ["y"]))
    assert write_forms(graph) == []


def swish_nodes(x="x", y="y"):
    """SiLU of a tensor, as exporters write it."""
    return [
        helper.make_node("Sigmoid", [x], [f"{y}_gate"], f"{y}_sigmoid"),
        helper.make_node("Mul", [f"{y}_gate", x], [y], f"{y}_product"),
    ]


def layered(swish, make_model, outputs=("y",), kernel=3, groups=1):
    """A network whose layer, which returns its input, stands before the nodes `swish`."""
    weight = np.zeros((4, 4 // groups, kernel, kernel), np.float32)
    for channel in range(4):
        weight[channel, 0 if groups > 1 else channel, kernel // 2, kernel // 2] = 1
    pads = [kernel // 2] * 4
    layer = helper.make_node("Conv", ["x", "w"], ["c"], "layer", pads=pads, group=groups)
    return make_model([layer, *swish], {"w": weight}, {"x": (1, 4, 5, 6)}, outputs)


def by_tanh(graph):
    return write_swish_by_tanh(graph, {"layer"})


def test_swish_is_written_with_tanh_when_asked(make_model, rewrite, picture):
    model = layered(swish_nodes("c"), make_model)
    assert write_forms(Graph(model)) == []
    # tanh of large numbers is off by an ulp of 1: x sigmoid(x) by |x| times 6e-8
    done, graph = rewrite(model, picture, by_tanh, tolerance=4e-6)
    assert operators(graph) == ["Conv", "Mul", "Tanh", "Mul", "Add"]
    assert done == ["y_product"]


def test_swish_behind_a_layer_in_float_stays(make_model):
    graph = Graph(layered(swish_nodes("c"), make_model))
    assert write_swish_by_tanh(graph, {"another"}) == []


def test_swish_saturates_as_before(make_model, rewrite, picture):
    picture[0, 0, 0] = [-1e30, -100, -20, 20, 100, 1e30]
    model = layered(swish_nodes("c"), make_model)
    rewrite(model, picture, by_tanh, tolerance=4e-6)


def test_a_gate_that_is_read_elsewhere_or_of_another_tensor_stays(make_model):
    read_twice = [*swish_nodes("c"), helper.make_node("Relu", ["y_gate"], ["z"])]
    graph = Graph(layered(read_twice, make_model, ["y", "z"]))
    assert by_tanh(graph) == []
    of_another = [helper.make_node("Relu", ["c"], ["r"]), *swish_nodes("c")]
    of_another[2].input[1] = "r"
    graph = Graph(layered(of_another, make_model))
    assert by_tanh(graph) == []


@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 4)])
def test_swish_behind_pointwise_and_depthwise_layers_stays(kernel, groups, make_model):
    graph = Graph(layered(swish_nodes("c"), make_model, kernel=kernel, groups=groups))
    assert by_tanh(graph) == []


def test_float16_stays(make_model, picture):
    cast = helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16)
    layer = helper.make_node("Conv", ["h", "w"], ["c"], "layer", pads=[1] * 4)
    hard = helper.make_node("HardSigmoid", ["s"], ["g"])
    back = helper.make_node("Cast", ["g"], ["y"], to=TensorProto.FLOAT)
    weight = np.ones((4, 4, 3, 3), np.float16)
    nodes = [cast, layer, *swish_nodes("c", "s"), hard, back]
    graph = Graph(make_model(nodes, {"w": weight}, {"x": picture.shape}, ["y"]))
    assert write_forms(graph) == by_tanh(graph) == []


POOL = {"kernel_shape": [3, 2], "strides": [2, 1]}


@pytest.mark.parametrize(
    "attributes",
    [{}, {"pads": [1, 0, 1, 1], "count_include_pad": 1}, {"pads": [0] * 4}, {"dilations": [1, 1]}],
)
def test_a_pool_of_a_picture_becomes_a_layer(attributes, make_model, rewrite, picture):
    node = helper.make_node("AveragePool", ["x"], ["y"], "pool", **POOL, **attributes)
    model = make_model([node], {}, {"x": picture.shape}, ["y"], opset=19)
    done, graph = rewrite(model, picture, convolve_pools, tolerance=1e-5)
    assert operators(graph) == ["Conv"]
    assert done == ["pool"]


@pytest.mark.parametrize(
    ("attributes", "channels"),
    [
        ({"pads": [1, 0, 1, 1]}, 3),
        ({"ceil_mode": 1}, 3),
        ({"auto_pad": "SAME_UPPER"}, 3),
        ({"dilations": [2, 1]}, 3),
        ({}, 5),
    ],
)
def test_other_pools_stay(attributes, channels, make_model):
    node = helper.make_node("AveragePool", ["x"], ["y"], "pool", **POOL, **attributes)
    graph = Graph(make_model([node], {}, {"x": (1, channels, 9, 8)}, ["y"], opset=19))
    assert convolve_pools(graph) == []


def test_a_pool_that_became_a_layer_stays_in_float(make_model):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    nodes = [
        helper.make_node("AveragePool", ["x"], ["p"], "pool", **POOL),
        helper.make_node("Conv", ["p", "w"], ["y"], "layer"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 12)}, ["y"])
    samples = [{"x": rng.random((1, 3, 12, 12)).astype(np.float32)}]
    result = quantize_model(model, samples, QuantizeSettings(target="openvino"))
    assert [layer.node for layer in result.layers] == ["layer"]
    written = Graph(result.model)
    assert written.node("pool").op_type == "Conv"
    assert written.node("pool").input[0] == "x"


def test_it_is_part_of_quantization_and_reported(make_model):
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((3, 3, 3, 3)).astype(np.float32) for name in ("w0", "w1")}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1] * 4),
        helper.make_node("HardSigmoid", ["a"], ["g"], "gate"),
        helper.make_node("Conv", ["g", "w1"], ["y"], "second", pads=[1] * 4),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["y"])
    samples = [{"x": rng.random((1, 3, 8, 8)).astype(np.float32)}]
    for target, expected in (("openvino", 0), ("tensorrt", 1)):
        result = quantize_model(model, samples, QuantizeSettings(target=target))
        left = [node for node in result.model.graph.node if node.op_type == "HardSigmoid"]
        assert len(left) == expected
        assert ("wrote HardSigmoid as Clip: gate" in result.simplified) == (expected == 0)
