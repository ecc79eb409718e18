"""PReLU and LeakyReLU that an exporter spelled out become one node."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.graph import Graph
from compress.quantize.spelled_prelus import join_spelled_prelus

SHAPE = (2, 3, 5, 4)
SLOPE = np.array([0.1, 0.25, 1.5], np.float32).reshape(1, 3, 1, 1)


def spell(kind, slope):
    """Returns the nodes of the term that is added, of its name, and its weights."""
    if kind == "keras":
        return [
            helper.make_node("Neg", ["x"], ["n"], "neg"),
            helper.make_node("Relu", ["n"], ["m"], "relu_of_neg"),
            helper.make_node("Mul", ["slope", "m"], ["t"], "times"),
        ], {"slope": -slope}
    if kind == "negated":
        return [
            helper.make_node("Neg", ["x"], ["n"], "neg"),
            helper.make_node("Relu", ["n"], ["m"], "relu_of_neg"),
            helper.make_node("Neg", ["m"], ["k"], "back"),
            helper.make_node("Mul", ["k", "slope"], ["t"], "times"),
        ], {"slope": slope}
    return [
        helper.make_node("Abs", ["x"], ["n"], "abs"),
        helper.make_node("Sub", ["x", "n"], ["m"], "difference"),
        helper.make_node("Mul", ["m", "slope"], ["k"], "times"),
        helper.make_node("Mul", ["k", "half"], ["t"], "halved"),
    ], {"slope": slope, "half": np.float32(0.5)}


@pytest.fixture
def make_spelled(make_model):
    def make(kind, slope=SLOPE, operator="Add", inputs=("r", "t"), relu="x"):
        nodes, weights = spell(kind, slope)
        nodes += [
            helper.make_node("Relu", [relu], ["r"], "relu"),
            helper.make_node(operator, list(inputs), ["y"], "sum"),
        ]
        return make_model(nodes, weights, {"x": SHAPE, "z": SHAPE}, ["y"])

    return make


@pytest.fixture
def join(simplified):
    """Returns a function that simplifies a network, whose results must stay."""

    def apply(model):
        rng = np.random.default_rng(0)
        feeds = {name: rng.normal(size=SHAPE).astype(np.float32) for name in "xz"}
        return simplified(model, feeds, rtol=1e-5, atol=1e-6)

    return apply


@pytest.mark.parametrize("inputs", [("r", "t"), ("t", "r")])
@pytest.mark.parametrize("kind", ["keras", "negated", "absolute"])
def test_a_prelu_is_one_node(kind, inputs, make_spelled, join):
    (node,) = join(make_spelled(kind, inputs=inputs))
    assert node.op_type == "PRelu"


def test_one_slope_for_all_is_a_leaky_relu(make_spelled, join):
    (node,) = join(make_spelled("keras", np.full((1, 3, 1, 1), 0.2, np.float32)))
    assert node.op_type == "LeakyRelu"


def test_what_is_subtracted_has_the_other_sign(make_spelled, join):
    (node,) = join(make_spelled("keras", operator="Sub"))
    assert node.op_type == "PRelu"


@pytest.mark.parametrize(
    "settings",
    [{"relu": "z"}, {"operator": "Sub", "inputs": ("t", "r")}, {"inputs": ("x", "t")}],
    ids=["another tensor", "the other way round", "no relu"],
)
def test_other_sums_stay(settings, make_spelled, join):
    kinds = {node.op_type for node in join(make_spelled("keras", **settings))}
    assert kinds.isdisjoint({"PRelu", "LeakyRelu"})


def test_the_pass_names_the_sum(make_spelled):

    assert join_spelled_prelus(Graph(make_spelled("keras"))) == [
        "joined sum and what it adds to a PRelu"
    ]
