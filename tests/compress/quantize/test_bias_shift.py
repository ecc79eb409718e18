"""The constant that moves a layer's output."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.bias_shift import find_next_offset, shift_bias
from compress.quantize.decisions import Decisions
from compress.quantize.graph import Graph

SHIFT = np.array([0.5, -1.0, 2.0])
OFFSET = np.array([1.0, 2.0, 3.0], np.float32)


def make_graph(make_model, *behind, offset=OFFSET, outputs=("y",)):
    """A MatMul of 4 inputs and 3 outputs, and what reads it."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"], "layer"), *behind]
    constants = {"w": np.ones((4, 3), np.float32), "c": np.asarray(offset, np.float32)}
    return Graph(make_model(nodes, constants, {"x": (2, 4)}, list(outputs)))


@pytest.mark.parametrize("inputs", [["z", "c"], ["c", "z"]])
def test_a_product_s_shift_goes_into_the_constant_that_is_added_behind_it(inputs, make_model):
    graph = make_graph(make_model, helper.make_node("Add", inputs, ["y"], "add"))
    decisions = Decisions()
    assert not shift_bias(graph, decisions, graph.node("layer"), SHIFT)
    np.testing.assert_array_equal(decisions.overrides["c"], OFFSET + SHIFT)
    assert decisions.overrides["c"].dtype == np.float32
    assert not decisions.biases


ADD = helper.make_node("Add", ["z", "c"], ["y"], "add")
OTHERS = {
    "another operator": ([helper.make_node("Mul", ["z", "c"], ["y"])], OFFSET, ["y"]),
    "two readers": ([ADD, helper.make_node("Relu", ["z"], ["y2"])], OFFSET, ["y", "y2"]),
    "an output itself": ([ADD], OFFSET, ["y", "z"]),
    "a constant read twice": (
        [ADD, helper.make_node("Mul", ["y", "c"], ["y2"])],
        OFFSET,
        ["y2"],
    ),
    "one number for all": ([ADD], [1.0], ["y"]),
    "one for each place": ([ADD], np.ones((2, 3)), ["y"]),
    "no constant": ([helper.make_node("Add", ["z", "z"], ["y"])], OFFSET, ["y"]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_moves_more_than_the_product_s_channels_stays(name, make_model):
    behind, offset, outputs = OTHERS[name]
    graph = make_graph(make_model, *behind, offset=offset, outputs=outputs)
    decisions = Decisions()
    assert find_next_offset(graph, graph.node("layer"), 3) is None
    assert not shift_bias(graph, decisions, graph.node("layer"), SHIFT)
    assert not decisions.overrides


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_convolution_reads_a_bias_of_its_own(has_bias, make_model):
    inputs = ["x", "w", "b"] if has_bias else ["x", "w"]
    nodes = [
        helper.make_node("Conv", inputs, ["y"], "layer"),
        helper.make_node("Conv", inputs, ["y2"], "other"),
    ]
    constants = {"w": np.ones((3, 2, 1, 1), np.float32), "b": OFFSET}
    graph = Graph(make_model(nodes, constants, {"x": (1, 2, 4, 4)}, ["y", "y2"]))
    decisions = Decisions()
    assert shift_bias(graph, decisions, graph.node("layer"), SHIFT)
    assert list(decisions.biases) == ["layer"]
    moved = decisions.overrides[decisions.biases["layer"]]
    np.testing.assert_array_equal(moved, OFFSET + SHIFT if has_bias else SHIFT)
    assert "b" not in decisions.overrides
