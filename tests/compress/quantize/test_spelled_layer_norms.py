"""LayerNormalization that Keras spelled out becomes one node."""

import numpy as np
import pytest
from onnx import helper

SHAPE = (2, 5, 12)


@pytest.fixture
def make_norm(make_model):
    """Returns a function that spells a norm of `x`, as tf2onnx writes Keras' own."""

    def make(*, pool=False, axis=-1, is_difference=False, shape=SHAPE, center="m", power=False):
        rng = np.random.default_rng(0)
        weights = {
            "gamma": rng.normal(size=(1, 1, 12)).astype(np.float32),
            "beta": rng.normal(size=12).astype(np.float32),
            "epsilon": np.float32(1e-3),
            "two": np.float32(2),
        }

        def mean(data, name):
            if pool:
                return helper.make_node("GlobalAveragePool", [data], [name], name)
            return helper.make_node("ReduceMean", [data], [name], name, axes=[axis], keepdims=1)

        square = ["d", "two"] if power else ["d", "d"]
        nodes = [
            mean("x", "m"),
            helper.make_node("Sub", ["x", center], ["d"], "centre"),
            helper.make_node("Pow" if power else "Mul", square, ["q"], "square"),
            mean("q", "v"),
            helper.make_node("Add", ["v", "epsilon"], ["e"], "more"),
            helper.make_node("Sqrt", ["e"], ["r"], "root"),
            helper.make_node("Reciprocal", ["r"], ["i"], "inverse"),
            helper.make_node("Mul", ["i", "gamma"], ["s"], "scale"),
            helper.make_node("Mul", ["x", "s"], ["a"], "scaled"),
        ]
        if is_difference:
            nodes += [
                helper.make_node("Mul", ["m", "s"], ["b"], "shift"),
                helper.make_node("Sub", ["beta", "b"], ["o"], "offset"),
            ]
        else:
            nodes += [
                helper.make_node("Neg", ["m"], ["n"], "negative"),
                helper.make_node("Mul", ["n", "s"], ["b"], "shift"),
                helper.make_node("Add", ["b", "beta"], ["o"], "offset"),
            ]
        nodes.append(helper.make_node("Add", ["a", "o"], ["y"], "sum"))
        return make_model(nodes, weights, {"x": shape, "z": (*shape[:-1], 1)}, ["y"])

    return make


@pytest.fixture
def join(simplified):
    """Returns a function that simplifies a network, whose results must stay."""

    def apply(model):
        rng = np.random.default_rng(1)
        feeds = {
            item.name: rng.normal(
                1, 2, [size.dim_value for size in item.type.tensor_type.shape.dim]
            ).astype(np.float32)
            for item in model.graph.input
        }
        return [node.op_type for node in simplified(model, feeds, rtol=1e-4, atol=1e-4)]

    return apply


@pytest.mark.parametrize(
    "settings",
    [{}, {"axis": 2}, {"pool": True}, {"is_difference": True}, {"power": True}],
    ids=["mean", "positive axis", "pool", "difference", "power"],
)
def test_a_layer_norm_is_one_node(settings, make_norm, join):
    assert join(make_norm(**settings)) == ["LayerNormalization"]


@pytest.mark.parametrize(
    "settings",
    [{"axis": 1}, {"center": "z"}, {"pool": True, "shape": (1, 3, 4, 12)}],
    ids=["another axis", "another centre", "pool of pictures"],
)
def test_other_norms_stay(settings, make_norm, join):
    assert "LayerNormalization" not in join(make_norm(**settings))
