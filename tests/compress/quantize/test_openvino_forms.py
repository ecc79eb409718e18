"""Operators in the form that OpenVINO's kernels take give the same results."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement.openvino_forms import write_forms
from compress.quantize.settings import QuantizeSettings


def assert_same(model, run_model, x, *, swish_by_tanh=False, tolerance=1e-6):
    """Returns the lines and the rewritten graph, whose results are the model's."""
    graph = Graph(model)
    done = write_forms(graph, swish_by_tanh=swish_by_tanh)
    expected, got = run_model(model, {"x": x}), run_model(graph.to_model(), {"x": x})
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=tolerance)
    return done, graph


def operators(graph):
    return [node.op_type for node in graph.nodes]


@pytest.fixture
def picture():
    return np.random.default_rng(0).normal(0, 6, (1, 4, 5, 6)).astype(np.float32)


@pytest.mark.parametrize("attributes", [{}, {"alpha": 1 / 6, "beta": 0.4}])
def test_hard_sigmoid_becomes_a_clip(attributes, make_model, run_model, picture):
    node = helper.make_node("HardSigmoid", ["x"], ["y"], "gate", **attributes)
    model = make_model([node], {}, {"x": picture.shape}, ["y"])
    done, graph = assert_same(model, run_model, picture)
    assert operators(graph) == ["Mul", "Add", "Clip"]
    assert done == ["wrote HardSigmoid as Clip: gate"]


def test_slopes_that_are_shared_or_of_a_lower_rank_become_own_ones(make_model, run_model, picture):
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
    _, graph = assert_same(model, run_model, picture)
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
    assert write_forms(graph, swish_by_tanh=True) == []


def swish_nodes(x="x", y="y"):
    return [
        helper.make_node("Sigmoid", [x], [f"{y}_gate"], f"{y}_sigmoid"),
        helper.make_node("Mul", [f"{y}_gate", x], [y], f"{y}_product"),
    ]


def test_swish_is_written_with_tanh_when_asked(make_model, run_model, picture):
    model = make_model(swish_nodes(), {}, {"x": picture.shape}, ["y"])
    assert assert_same(model, run_model, picture)[0] == []
    # tanh of large numbers is off by an ulp of 1: x sigmoid(x) by |x| times 6e-8
    done, graph = assert_same(model, run_model, picture, swish_by_tanh=True, tolerance=4e-6)
    assert operators(graph) == ["Mul", "Tanh", "Mul", "Add"]
    assert done == ["wrote SiLU with Tanh: y_product"]


def test_swish_saturates_as_before(make_model, run_model):
    x = np.float32([-1e30, -100, -20, 0, 20, 100, 1e30]).reshape(1, 1, 1, 7)
    model = make_model(swish_nodes(), {}, {"x": x.shape}, ["y"])
    assert_same(model, run_model, x, swish_by_tanh=True)


def test_a_gate_that_is_read_elsewhere_or_of_another_tensor_stays(make_model, picture):
    read_twice = [*swish_nodes(), helper.make_node("Relu", ["y_gate"], ["z"])]
    graph = Graph(make_model(read_twice, {}, {"x": picture.shape}, ["y", "z"]))
    assert write_forms(graph, swish_by_tanh=True) == []
    of_another = [helper.make_node("Relu", ["x"], ["r"]), *swish_nodes()]
    of_another[2].input[1] = "r"
    graph = Graph(make_model(of_another, {}, {"x": picture.shape}, ["y"]))
    assert write_forms(graph, swish_by_tanh=True) == []


def test_float16_stays(make_model, picture):
    cast = helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16)
    back = helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)
    hard = helper.make_node("HardSigmoid", ["w"], ["s"])
    nodes = [cast, *swish_nodes("h", "w"), hard, back]
    graph = Graph(make_model(nodes, {}, {"x": picture.shape}, ["y"]))
    assert write_forms(graph, swish_by_tanh=True) == []


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
