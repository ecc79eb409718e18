"""Masks of attention that hide nothing, and guards that never act, go; others stay."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.graph import Graph
from compress.quantize.placement import TensorRT
from compress.quantize.simplify import simplify

QUERIES, SIZE = 5, 8
HIDDEN = np.where(np.tri(QUERIES, dtype=bool), 0, -np.inf)[None]
"""Each query sees itself and what is before it."""


@pytest.fixture
def make_attention(make_model):
    """Attention as exporters write it where a mask might hide all keys of a query."""

    def make(mask, operator="Add", outputs=("y",), data="w"):
        rng = np.random.default_rng(0)
        weights = {f"w{at}": rng.standard_normal((SIZE, SIZE)) for at in range(3)}
        weights |= {"mask": np.asarray(mask), "zero": np.zeros(1), "w": weights["w0"]}
        nodes = [
            *(helper.make_node("MatMul", ["x", f"w{at}"], [f"p{at}"], f"l{at}") for at in range(3)),
            helper.make_node("Transpose", ["p1"], ["k"], "turn", perm=[0, 2, 1]),
            helper.make_node("MatMul", ["p0", "k"], ["s"], "scores"),
            helper.make_node(operator, ["s", "mask"], ["m"], "hide"),
            helper.make_node("Softmax", ["m"], ["p"], "softmax", axis=-1),
            helper.make_node("IsNaN", ["p"], ["n"], "ask"),
            helper.make_node("Where", ["n", "zero", "p"], ["g"], "guard"),
            helper.make_node("MatMul", ["g", "p2"], ["v"], "mix"),
            helper.make_node("MatMul", ["v", data], ["y"], "last"),
        ]
        weights = {name: value.astype(np.float32) for name, value in weights.items()}
        return make_model(nodes, weights, {"x": (1, QUERIES, SIZE)}, list(outputs))

    return make


def simplified(model):
    graph = Graph(model)
    simplify(graph)
    return graph


@pytest.mark.parametrize(
    ("mask", "operator", "left"),
    [
        (np.zeros((1, 1, QUERIES)), "Add", set()),
        (np.full((1, 1, QUERIES), -1e4), "Add", {"hide"}),
        (HIDDEN, "Add", {"hide"}),
        (np.full((1, 1, 1), 0.5), "Mul", {"hide"}),
        (np.where(np.arange(QUERIES)[:, None] == 2, -np.inf, 0)[None], "Add", {"hide", "guard"}),
        (np.full((1, 1, 1), -np.inf), "Add", {"hide", "guard"}),
        (np.full((1, 1, QUERIES), np.nan), "Add", {"hide", "guard"}),
        (np.where(np.arange(QUERIES) == 0, np.inf, 0)[None, None], "Add", {"hide", "guard"}),
        (np.where(np.arange(QUERIES) == 0, -np.inf, 1)[None, None], "Mul", {"hide", "guard"}),
    ],
)
def test_what_hides_nothing_goes(mask, operator, left, make_attention, run_model):
    model = make_attention(mask, operator)
    feeds = {"x": np.random.default_rng(1).standard_normal((1, QUERIES, SIZE)).astype(np.float32)}
    graph = simplified(model)
    assert {node.name for node in graph.nodes} & {"hide", "guard"} == left
    assert any(node.op_type == "IsNaN" for node in graph.nodes) == ("guard" in left)
    wanted, got = run_model(model, feeds)["y"], run_model(graph.to_model(), feeds)["y"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("output", ["p", "g", "m"])
def test_what_the_user_reads_stays(output, make_attention, run_model):
    model = make_attention(np.zeros((1, 1, QUERIES)), outputs=("y", output))
    feeds = {"x": np.random.default_rng(1).standard_normal((1, QUERIES, SIZE)).astype(np.float32)}
    wanted, got = run_model(model, feeds), run_model(simplified(model).to_model(), feeds)
    for name in ("y", output):
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_a_mask_that_enlarges_the_scores_stays(make_attention):
    graph = simplified(make_attention(np.zeros((3, 1, QUERIES))))
    assert any(node.name == "hide" for node in graph.nodes)


@pytest.mark.parametrize("mask", [np.zeros((1, 1, QUERIES)), np.full((1, 1, 1), -np.inf)])
def test_both_products_are_quantized_alike(mask, make_attention):
    quantized, _ = TensorRT().place(simplified(make_attention(mask)))
    assert {item.node for item in quantized} >= {"scores", "mix"}
