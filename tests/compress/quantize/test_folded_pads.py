"""A Pad with zeros that only Convs read is done by the Convs."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.folded_pads import fold_pads
from compress.quantize.graph import Graph
from compress.quantize.placement import PLACEMENTS
from compress.quantize.settings import QuantizeSettings

SHAPE = (1, 4, 9, 8)


@pytest.fixture
def make_padded(make_model):
    """Returns a function that makes a network of a Pad and the Convs that read it."""

    def make(amounts, convs=({},), *, value=0.0, axes=None, mode="constant", more=()):
        rng = np.random.default_rng(0)
        inputs = ["x", "amounts", "value" if mode == "constant" else ""]
        kernel = rng.normal(size=(4, 1, 3, 3)).astype(np.float32)
        weights = {"amounts": np.array(amounts), "w": kernel}
        if mode == "constant":
            weights["value"] = np.float32(value)
        if axes is not None:
            weights["axes"] = np.array(axes)
            inputs += ["axes"]
        nodes = [helper.make_node("Pad", inputs, ["p"], "pad", mode=mode)]
        outputs = [f"y{at}" for at in range(len(convs))]
        for name, settings in zip(outputs, convs, strict=True):
            nodes.append(helper.make_node("Conv", ["p", "w"], [name], name, group=4, **settings))
        outputs += [node.output[0] for node in more]
        return make_model([*nodes, *more], weights, {"x": SHAPE}, outputs, 18)

    return make


@pytest.mark.parametrize(
    ("amounts", "axes", "convs"),
    [
        ([0, 0, 0, 0, 0, 0, 1, 1], None, [{"strides": [2, 2]}]),
        ([0, 1, 1, 0], [-1, -2], [{"strides": [2, 1], "pads": [1, 0, 0, 1]}]),
        ([3, 2], [2], [{"dilations": [2, 2]}]),
        ([1, 2], [3], [{"auto_pad": "VALID"}, {"pads": [2, 0, 0, 0]}]),
    ],
    ids=["behind both axes", "beside pads", "dilated", "two readers"],
)
def test_the_convs_pad(amounts, axes, convs, make_padded, rewrite):
    picture = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    done, graph = rewrite(make_padded(amounts, convs, axes=axes), picture, fold_pads)
    assert done == ["folded pad"]
    assert [node.op_type for node in graph.nodes] == ["Conv"] * len(convs)


@pytest.mark.parametrize(
    "settings",
    [
        {"amounts": [0, 0, 1, 1], "axes": [2, 3], "value": 0.5},
        {"amounts": [0, 0, 1, 1], "axes": [2, 3], "mode": "reflect"},
        {"amounts": [-1, 1], "axes": [2]},
        {"amounts": [0, 3], "axes": [2]},
        {"amounts": [0, 1], "axes": [2], "convs": [{"auto_pad": "SAME_UPPER"}]},
        {"amounts": [0, 1], "axes": [0]},
        {"amounts": [0, 1], "axes": [2], "more": [helper.make_node("Relu", ["p"], ["r"], "r")]},
    ],
    ids=["value", "mode", "cut", "beyond the kernel", "auto_pad", "batch", "another reader"],
)
def test_other_pads_stay(settings, make_padded):
    graph = Graph(make_padded(**settings))
    assert fold_pads(graph) == []
    assert [node.op_type for node in graph.nodes].count("Pad") == 1


@pytest.mark.parametrize("target", sorted(PLACEMENTS))
def test_no_pad_stands_between_integers(target, make_model):
    rng = np.random.default_rng(0)
    weights = {
        "amounts": np.array([0, 0, 0, 0, 0, 0, 1, 1]),
        "a": rng.normal(size=(16, 3, 3, 3)).astype(np.float32),
        "b": rng.normal(size=(16, 16, 3, 3)).astype(np.float32),
        "c": rng.normal(size=(16, 16, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Pad", ["r", "amounts"], ["p"], "pad"),
        helper.make_node("Conv", ["p", "b"], ["s"], "second", strides=[2, 2]),
        helper.make_node("Relu", ["s"], ["t"], "relu2"),
        helper.make_node("Conv", ["t", "c"], ["y"], "last"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 20, 20)}, ["y"])
    samples = [{"x": rng.normal(size=(1, 3, 20, 20)).astype(np.float32)} for _ in range(2)]
    result = quantize_model(model, samples, QuantizeSettings(target=target))
    assert "Pad" not in {node.op_type for node in result.model.graph.node}
