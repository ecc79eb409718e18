"""Max and Min with a number become the Relu and Clip that they are."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.graph import Graph
from compress.quantize.simplify import simplify

SHAPE = (1, 3, 5, 4)
NUMBERS = {
    "zero": np.float32(0),
    "six": np.full((1, 1, 1), 6, np.float32),
    "low": np.full(1, -0.25, np.float32),
    "high": np.float32(0.5),
    "under": np.float32(-1),
    "deep": np.zeros((1,) * 5, np.float32),
    "row": np.linspace(-1, 1, 4, dtype=np.float32),
}


@pytest.fixture
def apply(make_model, run_model):
    """Returns a function that simplifies a chain of nodes, whose result must stay."""

    def run(*steps):
        nodes = []
        for place, (operator, *inputs) in enumerate(steps):
            names = [f"h{place - 1}" if name == "." else name for name in inputs]
            nodes.append(helper.make_node(operator, names, [f"h{place}"], f"node{place}"))
        nodes[-1].output[0] = "y"
        used = {name: NUMBERS[name] for step in steps for name in step[1:] if name in NUMBERS}
        model = make_model(nodes, used, {"x": SHAPE}, ["y"])
        graph = Graph(model)
        simplify(graph)
        feeds = {"x": np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)}
        wanted, got = (run_model(item, feeds)["y"] for item in (model, graph.to_model()))
        np.testing.assert_array_equal(got, wanted)
        return [node.op_type for node in graph.nodes]

    return run


@pytest.mark.parametrize(
    ("steps", "kinds"),
    [
        ([("Max", "x", "zero")], ["Relu"]),
        ([("Max", "zero", "x")], ["Relu"]),
        ([("Max", "x", "low")], ["Clip"]),
        ([("Min", "high", "x")], ["Clip"]),
        ([("Max", "x", "zero"), ("Min", ".", "six")], ["Clip"]),
        ([("Relu", "x"), ("Min", ".", "high")], ["Clip"]),
        ([("Max", "x", "low"), ("Min", ".", "high")], ["Clip"]),
        ([("Max", "x", "zero"), ("Min", ".", "under")], ["Relu", "Clip"]),
        ([("Max", "x", "zero"), ("Min", ".", "high"), ("Add", ".", "h0")], ["Relu", "Clip", "Add"]),
    ],
)
def test_a_bound_is_a_relu_or_clip(steps, kinds, apply):
    assert apply(*steps) == kinds


@pytest.mark.parametrize("bound", ["row", "deep"])
def test_other_constants_stay(bound, apply):
    assert apply(("Max", "x", bound)) == ["Max"]


def test_two_computed_operands_stay(apply):
    assert apply(("Tanh", "x"), ("Max", ".", "x")) == ["Tanh", "Max"]
