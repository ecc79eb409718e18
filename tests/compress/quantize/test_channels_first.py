"""What was computed with the channels last gives the same results with the channels first."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.placement.channels_first import write_channels_first
from compress.quantize.settings import QuantizeSettings

SHAPE = (1, 4, 5, 6)
RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.standard_normal((4, 8)).astype(np.float32),
    "wide": RNG.standard_normal(8).astype(np.float32),
    "back": RNG.standard_normal((8, 4)).astype(np.float32),
    "gamma": RNG.uniform(0.5, 1.5, 4).astype(np.float32),
    "beta": RNG.standard_normal(4).astype(np.float32),
    "row": RNG.standard_normal((1, 6, 4)).astype(np.float32),
    "half": np.float32(0.5),
}
LINKS = {
    "Linear": lambda x, y: [
        helper.make_node("MatMul", [x, "w"], [f"{y}_m"]),
        helper.make_node("Add", ["wide", f"{y}_m"], [f"{y}_a"]),
        helper.make_node("Tanh", [f"{y}_a"], [f"{y}_t"]),
        helper.make_node("MatMul", [f"{y}_t", "back"], [y]),
    ],
    "LayerNorm": lambda x, y: [
        helper.make_node("LayerNormalization", [x, "gamma", "beta"], [y], epsilon=1e-3)
    ],
    "LayerNorm without bias": lambda x, y: [
        helper.make_node("LayerNormalization", [x, "gamma"], [y], axis=3)
    ],
    "response norm": lambda x, y: [
        helper.make_node("ReduceL2", [x], [f"{y}_l"], axes=[1, 2], keepdims=1),
        helper.make_node("ReduceMean", [f"{y}_l"], [f"{y}_m"], axes=[-1], keepdims=1),
        helper.make_node("Sub", [f"{y}_l", f"{y}_m"], [f"{y}_d"]),
        helper.make_node("Mul", [x, f"{y}_d"], [f"{y}_p"]),
        helper.make_node("Tanh", [f"{y}_p"], [y]),
    ],
    "residual": lambda x, y: [
        helper.make_node("PRelu", [x, "gamma"], [f"{y}_r"]),
        helper.make_node("Add", [x, f"{y}_r"], [f"{y}_s"]),
        helper.make_node("Mul", [f"{y}_s", "half"], [y]),
    ],
    "map": lambda x, y: [helper.make_node("Sub", [x, "row"], [y])],
}


def to_last(x, y, name=""):
    return helper.make_node("Transpose", [x], [y], name or f"{y}_last", perm=[0, 2, 3, 1])


def to_first(x, y, name=""):
    return helper.make_node("Transpose", [x], [y], name or f"{y}_first", perm=[0, 3, 1, 2])


def island(make_model, links, tail=(), outputs=("y",), opset=17):
    """A network that moves the channels to the end, computes, and moves them back."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), to_last("r", "t0")]
    for number, link in enumerate(links):
        nodes += LINKS[link](f"t{number}", f"t{number + 1}")
    nodes.append(to_first(f"t{len(links)}", "f"))
    nodes += tail or [helper.make_node("Relu", ["f"], ["y"])]
    return make_model(nodes, WEIGHTS, {"x": SHAPE}, outputs, opset=opset)


@pytest.fixture
def picture():
    return np.random.default_rng(1).normal(0, 2, SHAPE).astype(np.float32)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(links=st.lists(st.sampled_from(list(LINKS)), max_size=4))
def test_islands_of_any_operators_lose_their_transposes(links, make_model, rewrite, picture):
    model = island(make_model, links)
    done, graph = rewrite(model, picture, write_channels_first, tolerance=2e-4)
    assert done == ["t0_last", "f_first"]
    left = {node.op_type for node in graph.nodes}
    assert not left & {"Transpose", "MatMul", "LayerNormalization"}
    assert all(name in graph.shapes for node in graph.nodes for name in node.output)


def test_a_new_opset_gives_axes_as_inputs(make_model, rewrite, picture):
    nodes = [to_last("x", "t"), *LINKS["LayerNorm"]("t", "n"), to_first("n", "y")]
    model = make_model(nodes, WEIGHTS, {"x": SHAPE}, ["y"], opset=20)
    done, graph = rewrite(model, picture, write_channels_first, tolerance=1e-5)
    assert len(done) == 2
    assert [len(node.input) for node in graph.nodes if node.op_type == "ReduceMean"] == [2, 2]


def test_islands_meet_and_part(make_model, rewrite, picture):
    tail = [
        to_last("f", "u"),
        to_last("r", "v"),
        helper.make_node("Add", ["u", "v"], ["s"]),
        to_first("s", "y"),
        to_first("u", "z"),
    ]
    model = island(make_model, ["Linear"], tail, outputs=["y", "z"])
    done, graph = rewrite(model, picture, write_channels_first, tolerance=1e-5)
    assert len(done) == 6
    assert "Transpose" not in {node.op_type for node in graph.nodes}


@pytest.mark.parametrize(
    "tail",
    [
        [helper.make_node("Softmax", ["t1"], ["y"], axis=-1)],
        [helper.make_node("Identity", ["t1"], ["y"])],
        [to_first("t1", "f2"), helper.make_node("Softmax", ["t0"], ["y"], axis=-1)],
    ],
)
def test_an_island_that_something_else_reads_stays(tail, make_model, rewrite, picture):
    model = island(make_model, ["LayerNorm"], [*tail, to_first("t1", "z")], outputs=["y", "z"])
    done, graph = rewrite(model, picture, write_channels_first)
    assert done == []
    assert [node.op_type for node in graph.nodes] == [node.op_type for node in model.graph.node]


def test_a_result_with_the_channels_last_stays(make_model, rewrite, picture):
    model = island(make_model, ["Linear"], outputs=["y", "t1"])
    assert rewrite(model, picture, write_channels_first)[0] == []


def test_the_1x1_layers_are_quantized_and_the_results_are_near(make_model, run_model, picture):
    rng = np.random.default_rng(2)
    weights = WEIGHTS | {"conv": rng.standard_normal((4, 4, 3, 3)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "conv"], ["c"], "spatial", pads=[1] * 4),
        to_last("c", "t"),
        *LINKS["LayerNorm"]("t", "n"),
        helper.make_node("MatMul", ["n", "w"], ["m"], "expand"),
        helper.make_node("Add", ["m", "wide"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "back"], ["l"], "shrink"),
        to_first("l", "f"),
        helper.make_node("Add", ["f", "c"], ["y"], "residual"),
    ]
    model = make_model(nodes, weights, {"x": SHAPE}, ["y"])
    samples = [{"x": rng.standard_normal(SHAPE).astype(np.float32)} for _ in range(4)]
    result = quantize_model(model, samples, QuantizeSettings(target="openvino"))
    names = {layer.node for layer in result.layers}
    assert {"spatial", "expand", "shrink"} <= names
    left = [node.op_type for node in result.model.graph.node]
    assert left.count("Conv") == 3
    assert not {"Transpose", "MatMul"} & set(left)
    assert any("channels first" in line for line in result.simplified)
    expected, got = (run_model(item, samples[0])["y"] for item in (model, result.model))
    assert np.mean((got - expected) ** 2) < 1e-3 * np.mean(expected**2)
    kept = quantize_model(model, samples, QuantizeSettings(target="tensorrt"))
    assert "Transpose" in [node.op_type for node in kept.model.graph.node]
