import numpy as np
import pytest
from onnx import helper

from compress.quantize.graph import Graph
from compress.quantize.simplify import simplify

CHANNELS = 4


@pytest.fixture
def make_branches(make_model):
    """Convs of one tensor, named a, b ..., each with its attributes, and how they are summed."""

    def make(convs, adds, extra=(), outputs=("y",)):
        rng = np.random.default_rng(0)
        weights, nodes = {}, []
        for name, (kernel, attributes) in convs.items():
            inputs = CHANNELS // attributes.get("group", 1)
            shape = (CHANNELS, inputs, *kernel)
            weights[f"w_{name}"] = rng.standard_normal(shape).astype(np.float32)
            weights[f"b_{name}"] = rng.standard_normal(CHANNELS).astype(np.float32)
            names = ["x", f"w_{name}", f"b_{name}"][: 2 + (name != "b")]
            nodes.append(helper.make_node("Conv", names, [name], name, **attributes))
        nodes += extra
        nodes += [
            helper.make_node("Add", [left, right], [result], f"add_{result}")
            for left, right, result in adds
        ]
        return make_model(nodes, weights, {"x": (1, CHANNELS, 10, 12)}, list(outputs))

    return make


WIDE = ((3, 3), {"pads": [1, 1, 1, 1]})
POINT = ((1, 1), {})
JOINED = {
    "as MobileOne sums": ({"a": POINT, "b": WIDE, "c": WIDE}, [("a", "b", "s"), ("s", "c", "y")]),
    "rows and columns": (
        {"a": ((3, 3), {"pads": [1] * 4}), "b": ((1, 3), {"pads": [0, 1, 0, 1]})},
        [("b", "a", "y")],
    ),
    "strides and groups": (
        {
            "a": ((5, 5), {"pads": [2] * 4, "strides": [2, 2], "group": 2}),
            "b": ((3, 3), {"pads": [1] * 4, "strides": [2, 2], "group": 2}),
        },
        [("a", "b", "y")],
    ),
    "a shortcut between": ({"a": POINT, "b": WIDE}, [("a", "x", "s"), ("s", "b", "y")]),
}
APART = {
    "other groups": ({"a": WIDE, "b": ((3, 3), {"pads": [1] * 4, "group": 2})}, [("a", "b", "y")]),
    "other places": (
        {"a": ((3, 3), {"pads": [0, 0, 2, 2]}), "b": ((3, 3), {"pads": [1] * 4})},
        [("a", "b", "y")],
    ),
    "dilated": (
        {
            "a": ((3, 3), {"pads": [2] * 4, "dilations": [2, 2]}),
            "b": ((3, 3), {"pads": [2] * 4, "dilations": [2, 2]}),
        },
        [("a", "b", "y")],
    ),
    "counted twice": ({"a": POINT, "b": WIDE}, [("a", "a", "s"), ("s", "b", "y")]),
}


def count_convs(graph):
    return sum(node.op_type == "Conv" for node in graph.nodes)


@pytest.mark.parametrize("case", JOINED.values(), ids=list(JOINED))
def test_convs_that_are_summed_become_one(case, make_branches, run_model):
    model = make_branches(*case)
    graph = Graph(model)
    assert any(line.startswith("joined") for line in simplify(graph))
    assert count_convs(graph) == 1
    feeds = {"x": np.random.default_rng(1).standard_normal((1, CHANNELS, 10, 12), np.float32)}
    expected = run_model(model, feeds)["y"]
    np.testing.assert_allclose(run_model(graph.to_model(), feeds)["y"], expected, atol=1e-4)


@pytest.mark.parametrize("case", APART.values(), ids=list(APART))
def test_convs_that_read_otherwise_stay(case, make_branches, run_model):
    model = make_branches(*case)
    graph = Graph(model)
    assert not any(line.startswith("joined") for line in simplify(graph))
    feeds = {"x": np.random.default_rng(1).standard_normal((1, CHANNELS, 10, 12), np.float32)}
    expected = run_model(model, feeds)["y"]
    np.testing.assert_allclose(run_model(graph.to_model(), feeds)["y"], expected, atol=1e-4)


def test_convs_whose_results_others_read_stay(make_branches):
    graph = Graph(make_branches({"a": POINT, "b": WIDE}, [("a", "b", "y")], outputs=("y", "a")))
    simplify(graph)
    assert count_convs(graph) == 2
