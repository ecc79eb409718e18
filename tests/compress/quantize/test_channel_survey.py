"""What layers read is looked at once, and stays right while repairs rescale it."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.channel_survey import AXES, FEWEST_POSITIONS, ChannelSurvey
from compress.quantize.executor import Subgraph
from compress.quantize.graph import Graph
from compress.quantize.placement import TensorRT
from compress.quantize.prepare import PRODUCTS, RESCALING
from compress.quantize.qparams import INT8_WEIGHTS
from compress.quantize.repairs.equalization import ENOUGH_SAMPLES
from compress.quantize.simplify import simplify
from compress.quantize.survey import list_ranged, survey_tensors

PATTERNS = [
    ("pyramid", "equalize"),
    ("gated_levels", "equalize"),
    ("gated_levels", "scale_channels"),
    ("upsample", "equalize"),
    ("gate", "scale_channels"),
    ("shuffle", "scale_joined"),
    ("split", "scale_joined"),
    ("joined_apart", "scale_joined"),
]
"""Networks, and a repair that finds something in each."""


def list_read(graph):
    return {
        node.input[0]: AXES[node.op_type]
        for node in graph.nodes
        if node.op_type in AXES and node.input[1] in graph.weights
    }


@pytest.fixture
def samples(samples):
    return ([*samples] * ENOUGH_SAMPLES)[:ENOUGH_SAMPLES]


def make_uneven(model):
    """Returns the simplified network with channels from loud to quiet."""
    graph = Graph(model)
    simplify(graph)
    for node in graph.nodes:
        weight = graph.weights.get(node.input[1]) if node.op_type in AXES else None
        if weight is not None:
            axis = 1 if node.op_type in ("ConvTranspose", "MatMul") else 0
            shape = [-1 if own == axis else 1 for own in range(weight.ndim)]
            loudness = np.geomspace(4, 1 / 16, weight.shape[axis]).reshape(shape)
            graph.weights[node.input[1]] = (weight * loudness).astype(np.float32)
    return graph


@pytest.fixture
def norm_model(make_model):
    """A product behind a normalization that makes some channels loud."""
    rng = np.random.default_rng(0)
    weights = {
        "scale": np.geomspace(1, 64, 16).astype(np.float32),
        "w": rng.standard_normal((16, 8)).astype(np.float32),
    }
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale"], ["n"], "norm"),
        helper.make_node("MatMul", ["n", "w"], ["y"], "product"),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


@pytest.fixture
def dense_model(make_model):
    """A layer and a Concat read what one activation writes."""
    rng = np.random.default_rng(0)
    loud = np.geomspace(1, 16, 8).reshape(8, 1, 1, 1)
    weights = {
        "w0": rng.standard_normal((8, 3, 1, 1)) * loud,
        "w1": rng.standard_normal((8, 8, 3, 3)) * loud / loud.reshape(1, 8, 1, 1),
        "w2": rng.standard_normal((4, 16, 1, 1)) / np.tile(loud.reshape(1, 8, 1, 1), (1, 2, 1, 1)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "first"),
        helper.make_node("HardSwish", ["c0"], ["s0"], "act0"),
        helper.make_node("Conv", ["s0", "w1"], ["c1"], "second", pads=[1] * 4),
        helper.make_node("HardSwish", ["c1"], ["s1"], "act1"),
        helper.make_node("Concat", ["s0", "s1"], ["j"], "join", axis=1),
        helper.make_node("Conv", ["j", "w2"], ["y"], "last"),
    ]
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


@pytest.fixture
def pooled_model(make_model):
    """A layer behind a hard-swish, a pooling and a Resize, with channels from quiet to loud."""
    rng = np.random.default_rng(0)
    loud = np.geomspace(1, 64, 8).reshape(8, 1, 1, 1)
    weights = {
        "w0": (rng.standard_normal((8, 3, 1, 1)) * loud).astype(np.float32),
        "w1": (rng.standard_normal((4, 8, 1, 1)) / loud.reshape(1, 8, 1, 1)).astype(np.float32),
        "enlarged": np.array([1, 1, 2, 2], np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "first"),
        helper.make_node("HardSwish", ["c0"], ["s0"], "act0"),
        helper.make_node("MaxPool", ["s0"], ["p"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Resize", ["p", "", "enlarged"], ["e"], "enlarge", mode="nearest"),
        helper.make_node("Conv", ["e", "w1"], ["y"], "last"),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


def repair_all(graph, samples):
    """Yields the survey after each repair, and how many places that rescaled."""
    quantized = TensorRT().place(graph)[0]
    names = [item.node for item in quantized]
    survey = ChannelSurvey(samples, list_ranged(graph, quantized))
    for repair in (*RESCALING, *PRODUCTS):
        lines = repair(graph, survey, TensorRT(), names, INT8_WEIGHTS)
        yield survey, repair.__name__, sum("left the input" not in line for line in lines)


def require_right(survey, graph, samples):
    read = list_read(graph)
    kept, anew = survey.look(graph, read), ChannelSurvey(samples).look(graph, read)
    for name in read:
        np.testing.assert_allclose(kept[name].values, anew[name].values, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(kept[name].peaks, anew[name].peaks, rtol=1e-3, atol=1e-4)
    ranged = list_ranged(graph, TensorRT().place(graph)[0])
    taken, computed = survey.take(ranged), survey_tensors(graph, ranged, samples)
    assert taken.keys() >= set(read) & set(ranged)
    for name, item in taken.items():
        ends = (computed[name].low, computed[name].high)
        np.testing.assert_allclose((item.low, item.high), ends, rtol=1e-3, atol=1e-4)
        assert len(item.values) == len(samples)


@pytest.mark.parametrize(("pattern", "repair"), PATTERNS)
def test_what_repairs_rescale_is_as_if_looked_at_anew(pattern, repair, make_pattern, samples):
    graph = make_uneven(make_pattern(pattern))
    rescaled = {}
    for survey, name, places in repair_all(graph, samples):
        require_right(survey, graph, samples)
        rescaled[name] = places
    assert rescaled[repair] > 0


def test_a_product_beside_what_it_divides_too(dense_model, samples):
    graph = Graph(dense_model)
    simplify(graph)
    for survey, _, _ in repair_all(graph, samples):
        require_right(survey, graph, samples)
    (second,) = (node for node in graph.nodes if node.name == "second")
    assert second.input[0] != "s0"


def test_what_was_looked_at_along_another_axis_is_forgotten(norm_model, samples):
    graph = Graph(norm_model)
    survey = ChannelSurvey(samples, ["x"])
    survey.look(graph, {"n": 1})
    before = survey.look(graph, {"n": -1})["n"]
    survey.divide({"n"}, np.full(16, 2.0), axis=-1)
    survey.derive("half", "x", np.full(16, 2.0), axis=-1)
    np.testing.assert_array_equal(survey.look(graph, {"n": -1})["n"].values, before.values / 2)
    assert list(survey.take(["half", "x"])) == ["x"]
    np.testing.assert_array_equal(survey.take(["n"])["n"].high, before.highs.max() / 2)


def test_very_wide_networks_keep_fewer_positions(norm_model, samples, monkeypatch):
    graph = Graph(norm_model)
    monkeypatch.setattr("compress.quantize.channel_survey.values_of_each", lambda *_: 0)
    whole = ChannelSurvey(samples).look(graph, {"n": -1})["n"]
    monkeypatch.setattr("compress.quantize.channel_survey.BYTES_IN_ALL", 1)
    few = ChannelSurvey(samples).look(graph, {"n": -1})["n"]
    assert whole.values.shape[1] == len(samples) * 36
    assert len(samples) <= few.values.shape[1] <= FEWEST_POSITIONS
    np.testing.assert_array_equal(few.peaks, whole.peaks)


def test_what_is_pooled_behind_a_product_too(pooled_model, samples):
    graph = Graph(pooled_model)
    simplify(graph)
    for survey, name, places in repair_all(graph, samples):
        require_right(survey, graph, samples)
        assert (places > 0) == (name == "scale_channels")


def test_products_behind_normalizations_too(norm_model, samples):
    graph = Graph(norm_model)
    for survey, name, places in repair_all(graph, samples):
        require_right(survey, graph, samples)
        assert (places > 0) == (name == "migrate_scales")


@pytest.mark.parametrize(("pattern", "repair"), PATTERNS)
def test_the_network_is_computed_once_for_all(pattern, repair, make_pattern, samples, monkeypatch):
    opened = []

    class Counted(Subgraph):
        def __init__(self, *args, **options):
            opened.append(args)
            super().__init__(*args, **options)

    monkeypatch.setattr("compress.quantize.survey.Subgraph", Counted)
    graph = make_uneven(make_pattern(pattern))
    assert sum(name == repair and places > 0 for _, name, places in repair_all(graph, samples))
    assert len(opened) == 1
