"""Where Q/DQ pairs go, and what is declined."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.graph import Graph
from compress.quantize.placement import (
    PLACEMENTS,
    OpenVINO,
    TensorRT,
    last_layers,
    vector_layers,
)
from compress.quantize.simplify import simplify

KINDS = ("Resize", "Concat", "AveragePool")


@pytest.mark.parametrize("name", ["tensorrt", "openvino"])
def test_layers_and_the_residual_branch_are_placed(name, residual_model, monkeypatch):
    monkeypatch.setattr(vector_layers, "MOST_WEIGHTS", 0)
    monkeypatch.setattr(last_layers, "MOST_WORK", 0.0)
    graph = Graph(residual_model)
    simplify(graph)
    placed, declined = PLACEMENTS[name]().place(graph)
    assert not declined
    nodes = {item.node: item for item in placed}
    computing = [item.node for item in placed if not item.tied]
    assert computing == ["stem", "depthwise", "pointwise", "residual", "upsample", "classify"]
    assert nodes["upsample"].weight_axis == 1
    assert nodes["residual"].weight is None
    shortcut = graph.node("residual").input[nodes["residual"].activations[0]]
    assert shortcut == "r0"


def test_of_two_layers_the_one_computed_last_is_fused(make_model):
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((3, 3, 1, 1)).astype(np.float32) for i in range(2)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first"),
        helper.make_node("Conv", ["x", "w1"], ["b"], "last"),
        helper.make_node("Add", ["b", "a"], ["y"], "add"),
    ]
    graph = Graph(make_model(nodes, weights, {"x": (1, 3, 4, 4)}, ["y"]))
    placed, _ = TensorRT().place(graph)
    add = next(item for item in placed if item.node == "add")
    assert graph.node("add").input[add.activations[0]] == "a"


@pytest.mark.parametrize(
    ("target", "activation", "other", "is_quantized"),
    [
        ("openvino", "Neg", "x", False),
        ("openvino", "Relu", "x", True),
        ("openvino", "Neg", "top", True),
        ("tensorrt", "Neg", "x", True),
    ],
)
def test_a_trunk_without_activations_stays_in_float_on_openvino(
    target, activation, other, is_quantized, make_model
):
    """Not so what a pyramid adds: its other branch goes nowhere else."""
    weights = {"w": np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "layer"),
        helper.make_node("Neg", ["x"], ["top"]),
        helper.make_node("Add", ["a", other], ["s"], "add"),
        helper.make_node(activation, ["s"], ["y"]),
    ]
    graph = Graph(make_model(nodes, weights, {"x": (1, 3, 4, 4)}, ["y"]))
    placed, declined = PLACEMENTS[target]().place(graph)
    assert ("add" in {item.node for item in placed}) == is_quantized
    reasons = {item.node: item.reason for item in declined}
    assert is_quantized or "goes on without an activation" in reasons["add"]


@pytest.mark.parametrize(
    ("reader", "branches", "in_integers"),
    [("Sigmoid", 1, []), ("Sigmoid", 2, []), ("Conv", 2, ["add0", "add1"]), (None, 1, ["add0"])],
    ids=["a norm reads it too", "two sums and a norm", "a layer reads it too", "nobody else does"],
)
def test_on_tensorrt_sums_read_in_float_what_is_written_in_float_anyway(
    reader, branches, in_integers, make_model
):
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((3, 3, 1, 1)).astype(np.float32) for i in range(4)}
    nodes = [helper.make_node("Elu", ["x"], ["trunk"])]
    for i in range(branches):
        nodes.append(helper.make_node("Conv", ["x", f"w{i}"], [f"b{i}"], f"layer{i}"))
        nodes.append(helper.make_node("Add", ["trunk", f"b{i}"], [f"y{i}"], f"add{i}"))
    outputs = [f"y{i}" for i in range(branches)]
    if reader is not None:
        operands = ["trunk", "w3"] if reader == "Conv" else ["trunk"]
        nodes.append(helper.make_node(reader, operands, ["z"], "reader"))
        outputs.append("z")
    placed, declined = TensorRT().place(
        Graph(make_model(nodes, weights, {"x": (1, 3, 4, 4)}, outputs))
    )
    assert [item.node for item in placed if item.node.startswith("add")] == in_integers
    assert all("in float" in item.reason for item in declined)
    assert len(declined) == branches - len(in_integers)


def test_an_add_without_a_layer_is_left_alone(make_model):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("Add", ["a", "x"], ["y"], "add"),
    ]
    placed, declined = TensorRT().place(Graph(make_model(nodes, {}, {"x": (1, 2)}, ["y"])))
    assert (placed, declined) == ([], [])


def test_what_cannot_be_quantized_is_declined_with_the_reason(make_model):
    inputs = {"x": (1, 3, 4, 4), "w": (3, 3, 1, 1)}
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    placed, declined = TensorRT().place(Graph(make_model([node], {}, inputs, ["y"])))
    assert placed == []
    assert "computed" in declined[0].reason


def test_kept_nodes_are_declined_and_their_add_too(residual_model):
    graph = Graph(residual_model)
    simplify(graph)
    placed, declined = TensorRT().place(graph, frozenset({"pointwise"}))
    assert "residual" not in {item.node for item in placed}
    assert declined[0].node == "pointwise"


def test_grids():
    for low in (-0.1, 0.0):
        assert PLACEMENTS["tensorrt"]().activation_grid(low).is_signed
        assert not PLACEMENTS["openvino"]().activation_grid(low).is_signed
    assert OpenVINO(symmetric=True).activation_grid(-0.1).is_signed
    assert not OpenVINO(symmetric=True).activation_grid(0.0).is_signed


@pytest.mark.parametrize("name", ["tensorrt", "openvino"])
def test_nearest_resize_moves_integers_and_an_average_does_not(name, make_pattern):
    graph = Graph(make_pattern("neck"))
    placed = {item.node: item for item in PLACEMENTS[name]().place(graph)[0]}
    kinds = {kind: [node for node in graph.nodes if node.op_type == kind] for kind in KINDS}
    assert all(placed[node.name].tied for node in (*kinds["Resize"], *kinds["Concat"]))
    assert not [node for node in kinds["AveragePool"] if node.name in placed]
    (average,) = kinds["AveragePool"]
    (reader,) = graph.consumers(average.output[0])
    assert placed[reader.name].activations == (0,)


@pytest.mark.parametrize("name", ["tensorrt", "openvino"])
def test_linear_resize_stays_in_float_between_layers_in_integers(name, make_pattern):
    graph = Graph(make_pattern("upsample"))
    placed = {item.node: item for item in PLACEMENTS[name]().place(graph)[0]}
    kinds = {graph.node(item).op_type for item in placed}
    assert kinds == {"Conv", "ConvTranspose"}
    (transposed,) = (node for node in graph.nodes if node.op_type == "ConvTranspose")
    assert placed[transposed.name].weight_axis == 1
    layers = [node for node in graph.nodes if node.op_type in ("Conv", "ConvTranspose")]
    assert len(layers) == len(placed)


def test_recurrent_layers_are_named_among_those_in_float(make_model):
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("w", (1, 16, 3)), ("r", (1, 16, 4)), ("w1", (4, 2)))
    }
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["", "h"], "memory", hidden_size=4),
        helper.make_node("MatMul", ["h", "w1"], ["y"], "head"),
    ]
    graph = Graph(make_model(nodes, weights, {"x": (5, 1, 3)}, ["y"]))
    for name in PLACEMENTS:
        _, declined = PLACEMENTS[name]().place(graph)
        reasons = {item.node: item.reason for item in declined}
        assert "LSTM" in reasons["memory"]
