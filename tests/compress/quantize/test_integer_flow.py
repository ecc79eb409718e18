"""Integers flow from the layer that makes a tensor to those that read it, through data movement."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.observers import MeanSquaredError
from compress.quantize.placement import PLACEMENTS, OpenVINO
from compress.quantize.requantize import requantize
from compress.quantize.settings import QuantizeSettings
from compress.quantize.survey import list_ranged, survey_tensors


def conv(name, data, weight, result, **attributes):
    return helper.make_node("Conv", [data, weight], [result], name, **attributes)


@pytest.fixture
def make_joined(make_model):
    """Two layers with ReLU, a Concat, and what `tail` makes of it; `reader` is the last layer."""

    def make(tail=(), extra=(), outputs=(), last="c", constants=None):
        rng = np.random.default_rng(0)
        weights = {
            name: rng.standard_normal(shape).astype(np.float32) * 0.3
            for name, shape in (("wa", (8, 3, 1, 1)), ("wb", (8, 3, 1, 1)), ("wc", (6, 16, 1, 1)))
        }
        weights |= {name: np.asarray(value) for name, value in (constants or {}).items()}
        nodes = [
            conv("left", "x", "wa", "a"),
            helper.make_node("Relu", ["a"], ["ra"], "left_relu"),
            conv("right", "x", "wb", "b"),
            helper.make_node("Relu", ["b"], ["rb"], "right_relu"),
            helper.make_node("Concat", ["ra", "rb"], ["c"], "join", axis=1),
            *tail,
            conv("reader", last, "wc", "y"),
            *extra,
        ]
        return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y", *outputs])

    return make


def place(model, target="openvino", keep_float=()):
    placed, declined = PLACEMENTS[target]().place(Graph(model), frozenset(keep_float))
    return {item.node: item for item in placed}, {item.node: item.reason for item in declined}


def test_a_shuffle_is_tied_from_the_layers_on(make_pattern):
    model = make_pattern("shuffle")
    placed, declined = place(model)
    moving = [item for item in placed.values() if item.tied]
    assert not declined
    assert len({item.tied for item in moving}) == 1
    makers = {output: node.op_type for node in model.graph.node for output in node.output}
    nodes = {node.name: node for node in model.graph.node}
    read = {nodes[item.node].input[at] for item in moving for at in item.activations}
    assert {makers[name] for name in read} == {"Relu"}


def test_tied_tensors_share_one_scale_in_the_file(make_pattern, samples):
    model = quantize_model(
        make_pattern("shuffle"), samples[:2], QuantizeSettings(target="openvino")
    ).model
    graph = Graph(model)
    joins = [node for node in graph.nodes if node.op_type == "Concat"]
    quantizers = [
        graph.producer(graph.producer(name).input[0])
        for node in joins
        for name in node.input
        if graph.producer(name).op_type == "DequantizeLinear"
    ]
    assert len(quantizers) == 4
    assert len({float(graph.weights[node.input[1]]) for node in quantizers}) == 1


@pytest.mark.parametrize(
    ("extra", "outputs", "reason"),
    [
        ([], ["c"], "output of the network"),
        ([helper.make_node("Sigmoid", ["c"], ["s"], "decoder")], ["s"], "'decoder' (Sigmoid)"),
    ],
)
def test_a_concat_that_is_needed_in_float_declines(make_joined, extra, outputs, reason):
    placed, declined = place(make_joined(extra=extra, outputs=outputs))
    assert "join" not in placed
    assert reason in declined["join"]
    assert placed["reader"].activations == (0,)


def test_a_concat_with_a_constant_says_why_it_stays_in_float(make_model):
    """As CoordConv joins places to a picture."""
    weights = {
        "places": np.ones((1, 2, 12, 16), np.float32),
        "w": np.ones((4, 5, 1, 1), np.float32),
    }
    nodes = [
        helper.make_node("Concat", ["x", "places"], ["c"], "join", axis=1),
        conv("reader", "c", "w", "y"),
    ]
    graph = Graph(make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"]))
    for target in ("tensorrt", "openvino"):
        declined = PLACEMENTS[target]().place(graph)[1]
        assert [(item.node, "constant" in item.reason) for item in declined] == [("join", True)]


def test_an_average_may_read_what_is_tied(make_joined):
    pool = helper.make_node("GlobalAveragePool", ["c"], ["p"], "pool")
    placed, declined = place(make_joined(extra=[pool], outputs=["p"]))
    assert placed["join"].tied
    assert not declined


@pytest.mark.parametrize(
    ("op_type", "which"), [("Concat", 0), ("Split", 0), ("Conv", 0), ("Conv", 1), ("Conv", -1)]
)
@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_any_node_may_stay_in_float(op_type, which, target, make_pattern, samples, run_model):
    model = make_pattern("split")
    kept = [node.name for node in model.graph.node if node.op_type == op_type][which]
    settings = QuantizeSettings(target=target, keep_float=(kept,))
    result = quantize_model(model, samples[:2], settings)
    graph = Graph(result.model)
    read = [graph.producer(name) for name in graph.node(kept).input]
    if op_type == "Conv":
        assert kept in {item.node for item in result.declined}
        assert graph.node(kept).input[1] in graph.weights
    else:
        assert all(node is None or node.op_type != "DequantizeLinear" for node in read)
    (name,) = graph.outputs
    wanted, got = (run_model(each, samples[0])[name] for each in (model, result.model))
    assert np.square(wanted - got).sum() < 0.01 * np.square(wanted).sum()


def test_a_pool_whose_input_others_need_in_float_stays_in_float(make_model):
    weights = {"w": np.ones((4, 3, 1, 1), np.float32), "v": np.ones((2, 4, 1, 1), np.float32)}
    nodes = [
        conv("first", "x", "w", "a"),
        helper.make_node("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        conv("last", "p", "v", "y"),
        helper.make_node("Sigmoid", ["a"], ["s"], "gate"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["y", "s"])
    assert "pool" not in place(model)[0]
    del model.graph.node[3], model.graph.output[1]
    assert place(model)[0]["pool"].tied


@pytest.mark.parametrize(("value", "is_moved"), [(0.0, True), (1.0, False)])
def test_only_zeros_may_be_padded(value, is_moved, make_joined):
    pad = helper.make_node("Pad", ["c", "pads", "value"], ["d"], "pad")
    constants = {"pads": np.array([0, 0, 1, 1] * 2, np.int64), "value": np.float32(value)}
    placed, _ = place(make_joined(tail=[pad], last="d", constants=constants))
    assert ("pad" in placed) == is_moved


def requantize_for_openvino(graph, samples):
    placed, _ = OpenVINO().place(graph)
    survey = survey_tensors(graph, list_ranged(graph, placed), samples)
    return requantize(graph, placed, survey, OpenVINO(), MeanSquaredError())


def test_a_narrow_tensor_is_requantized_before_a_wide_concat(make_pattern, samples, run_model):
    model = make_pattern("uneven")
    graph = Graph(model)
    done = requantize_for_openvino(graph, samples)
    assert len(done) == 1
    assert "times its own" in done[0]
    (name,) = (item.name for item in model.graph.output)
    wanted = run_model(model, samples[0])[name]
    np.testing.assert_array_equal(run_model(graph.to_model(), samples[0])[name], wanted)
    placed, _ = OpenVINO().place(graph)
    assert len({item.tied for item in placed if item.tied}) == 2
    assert requantize_for_openvino(graph, samples) == []


@pytest.mark.parametrize("pattern", ["shuffle", "split"])
def test_tensors_of_like_range_are_not_requantized(pattern, make_pattern, samples):
    graph = Graph(make_pattern(pattern))
    assert requantize_for_openvino(graph, samples) == []
