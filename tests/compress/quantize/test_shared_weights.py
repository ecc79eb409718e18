"""A weight that several layers share is stored once, where its integers serve them all."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.repairs.scale_group import find_scale_groups
from compress.quantize.settings import QuantizeSettings

BRANCHES = "ab"


@pytest.fixture
def make_siamese(make_model):
    """Two branches of two Convs; `copies` gives the second branch equal weights of its own."""

    def make(copies=False):
        rng = np.random.default_rng(0)
        one = {"w1": (12, 3, 3, 3), "w2": (8, 12, 3, 3)}
        weights = {
            name: rng.standard_normal(shape).astype(np.float32) for name, shape in one.items()
        }
        weights["w1"] *= np.exp(rng.standard_normal((12, 1, 1, 1))).astype(np.float32)
        nodes = []
        for branch in BRANCHES:
            own = f"_{branch}" if copies else ""
            weights |= {f"{name}{own}": weights[name] for name in one}
            names = [f"{branch}{step}" for step in ("", "_h", "_r", "_y")]
            nodes += [
                helper.make_node("Conv", [names[0], f"w1{own}"], [names[1]], f"{branch}1"),
                helper.make_node("Relu", [names[1]], [names[2]]),
                helper.make_node("Conv", [names[2], f"w2{own}"], [names[3]], f"{branch}2"),
            ]
        inputs = dict.fromkeys(BRANCHES, (1, 3, 16, 16))
        return make_model(nodes, weights, inputs, [f"{branch}_y" for branch in BRANCHES])

    return make


def make_samples(loudness=(1, 1, 1)):
    rng = np.random.default_rng(1)
    factors = {"a": np.ones((1, 3, 1, 1)), "b": np.reshape(loudness, (1, 3, 1, 1))}
    return [
        {name: rng.standard_normal((1, 3, 16, 16)) * factor for name, factor in factors.items()}
        for _ in range(16)
    ]


def quantize(model, samples, **settings):
    samples = [{name: array.astype(np.float32) for name, array in one.items()} for one in samples]
    return quantize_model(model, samples, QuantizeSettings(**settings))


def stored_weights(model):
    return [
        item
        for item in model.graph.initializer
        if item.data_type in (TensorProto.INT8, TensorProto.INT4) and len(item.dims) == 4
    ]


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_a_shared_weight_is_stored_once(target, copies, make_siamese):
    result = quantize(make_siamese(copies), make_samples(), target=target)
    assert len(result.layers) == 4
    assert len(stored_weights(result.model)) == 2
    assert min(result.outputs_db.values()) > 30
    onnx.checker.check_model(result.model, full_check=True)


def test_layers_that_lose_by_it_have_integers_of_their_own(make_siamese):
    """The second branch sees one of three channels, so that its weights are corrected for that."""
    samples = make_samples((1, 1, 300))
    shared = quantize(make_siamese(), samples, weights="int4", int4_share=1)
    assert len(stored_weights(shared.model)) > 2


def test_groups_of_shared_weights_are_rescaled_together(make_siamese):
    (group,) = find_scale_groups(Graph(make_siamese()))
    assert group.writers == ["a1", "b1"]
    assert group.readers == ["a2", "b2"]
