"""The editable graph: edges, names and subgraphs."""

import numpy as np
import onnx
from onnx import TensorProto, helper

from artifacts.graph_reading import read_tensors
from compress.quantize.graph import Graph


def branch(name, op_type):
    output = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)
    node = helper.make_node(op_type, ["outer"], [f"{name}_out"], name)
    return helper.make_graph([node], name, [], [output])


def test_what_a_subgraph_takes_from_outside_is_read():
    node = helper.make_node(
        "If", ["condition"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Neg")
    )
    assert set(read_tensors(node)) == {"condition", "outer"}


def test_nodes_get_unique_names(make_model):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "same"),
        helper.make_node("Relu", ["a"], ["b"], "same"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    graph = Graph(make_model(nodes, {}, {"x": (1, 2)}, ["y"]))
    assert len({node.name for node in graph.nodes}) == 3


def test_edges_and_the_sole_consumer(make_model):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Neg", ["a"], ["b"], "second"),
        helper.make_node("Add", ["a", "b"], ["y"], "third"),
    ]
    graph = Graph(make_model(nodes, {}, {"x": (1, 2)}, ["b", "y"]))
    assert graph.producer("a").name == "first"
    assert graph.producer("x") is None
    assert [node.name for node in graph.consumers("a")] == ["second", "third"]
    assert graph.sole_consumer("a") is None
    assert graph.sole_consumer("b") is None
    assert graph.sole_consumer("x").name == "first"


def test_the_round_trip_keeps_the_model(residual_model, samples, run_model):
    before = residual_model.SerializeToString()
    after = Graph(residual_model).to_model()
    onnx.checker.check_model(after)
    assert residual_model.SerializeToString() == before
    for name, value in run_model(residual_model, samples[0]).items():
        np.testing.assert_array_equal(run_model(after, samples[0])[name], value)


def test_names_inside_branches_are_taken(make_model):
    nodes = [
        helper.make_node(
            "If",
            ["is_bright"],
            ["y"],
            "choice",
            then_branch=branch("inside", "Relu"),
            else_branch=branch("outside", "Neg"),
        )
    ]
    graph = Graph(make_model(nodes, {"is_bright": np.array(True)}, {"outer": (1, 2)}, ["y"]))
    assert graph.unused_name("inside") != "inside"
    assert graph.unused_name("elsewhere") == "elsewhere"
