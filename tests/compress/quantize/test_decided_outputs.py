"""Labels and lists of boxes are measured at what they are decided about."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.decided_outputs import find_measured
from compress.compare import compare_models
from compress.diagnose.api import diagnose_model
from compress.errors import CalibrationError
from compress.quantize.api import quantize_model
from compress.quantize.placement import last_layers, vector_layers
from compress.quantize.search.contract import Contract
from compress.quantize.settings import QuantizeSettings
from compress.sqnr import SignalToNoise

CELLS = 64


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    return [{"x": rng.random((1, 3, 8, 8)).astype(np.float32)} for _ in range(6)]


@pytest.fixture
def layers():
    """Two convolutions that write "scores" [1, 4, 8, 8], and their weights."""
    rng = np.random.default_rng(1)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("w0", (8, 3, 3, 3)), ("w1", (4, 8, 1, 1)))
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "w1"], ["scores"], "second"),
    ]
    return nodes, weights


@pytest.fixture
def labels_model(make_model, layers):
    nodes, weights = layers
    decide = helper.make_node("ArgMax", ["scores"], ["labels"], "decide", axis=1, keepdims=0)
    return make_model(
        [*nodes, decide], weights, {"x": (1, 3, 8, 8)}, ["labels"], integers=["labels"]
    )


@pytest.fixture
def boxes_model(make_model, layers):
    """As many boxes as have a score above a threshold."""
    nodes, weights = layers
    weights |= {
        "row": np.array([1, 1, -1], np.int64),
        "column": np.array([1, CELLS, 4], np.int64),
        "most": np.array(CELLS, np.int64),
        "overlap": np.array(0.2, np.float32),
        "least": np.array(-1.0, np.float32),
        "first_score": np.array([0], np.int64),
        "third": np.array([2], np.int64),
        "flat": np.array([CELLS, 4], np.int64),
    }
    nodes = [
        *nodes,
        helper.make_node("Reshape", ["scores", "column"], ["boxes"], "boxes"),
        helper.make_node("Gather", ["scores", "first_score"], ["one"], "one", axis=1),
        helper.make_node("Reshape", ["one", "row"], ["confidence"], "confidence"),
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "confidence", "most", "overlap", "least"],
            ["chosen"],
            "suppress",
        ),
        helper.make_node("Gather", ["chosen", "third"], ["places"], "places", axis=1),
        helper.make_node("Reshape", ["boxes", "flat"], ["rows"], "rows"),
        helper.make_node("GatherND", ["rows", "places"], ["survivors"], "survivors"),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["survivors"])


def test_labels_are_measured_at_their_scores(labels_model, make_model, layers, samples):
    result = quantize_model(labels_model, samples)
    nodes, weights = layers
    scores = make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["scores"])
    alone = quantize_model(scores, samples)
    assert result.outputs_db == {"labels": alone.outputs_db["scores"]}
    assert any("'labels' is a decision" in line for line in result.simplified)
    assert result.model.graph.output[0].type.tensor_type.elem_type == TensorProto.INT64
    figures = compare_models(labels_model, result.model, samples)["outputs"]
    expected = compare_models(scores, alone.model, samples)["outputs"]["scores"]
    assert figures == {"labels": expected}
    assert 0.5 < expected["agreement"] <= 1


def test_boxes_that_survive_may_be_more_or_fewer(boxes_model, run_model):
    rng = np.random.default_rng(0)
    samples = [{"x": rng.random((1, 3, 8, 8)).astype(np.float32)} for _ in range(20)]
    result = quantize_model(boxes_model, samples)
    counts = [
        [len(run_model(model, sample)["survivors"]) for sample in samples]
        for model in (boxes_model, result.model)
    ]
    assert counts[0] != counts[1]
    assert min(counts[1]) > 0
    assert find_measured(boxes_model) == {"survivors": ("rows", "boxes", "confidence")}
    figures = compare_models(boxes_model, result.model, samples)["outputs"]["survivors"]
    assert 15 < figures["sqnr_db"] < 60
    assert figures["sqnr_db"] == pytest.approx(result.outputs_db["survivors"], abs=1.5)


@pytest.mark.parametrize("model_name", ["labels_model", "boxes_model"])
def test_searches_and_diagnoses_measure_there_too(model_name, samples, request):
    model = request.getfixturevalue(model_name)
    (output,) = find_measured(model)
    contract = Contract(head=output, kind="sqnr", limit=10.0)
    settings = QuantizeSettings(target="openvino", prefer="quality", contracts=(contract,))
    result = quantize_model(model, samples, settings, clock=lambda models: [1.0] * len(models))
    assert result.precision is not None
    diagnosis = diagnose_model(model, samples, QuantizeSettings(target="openvino"))
    assert 15 < diagnosis.heads_db[output] < 60


def test_what_is_decided_about_may_be_an_output_itself(make_model, layers, samples):
    nodes, weights = layers
    decide = helper.make_node("ArgMax", ["scores"], ["labels"], "decide", axis=1)
    model = make_model(
        [*nodes, decide], weights, {"x": (1, 3, 8, 8)}, ["scores", "labels"], integers=["labels"]
    )
    result = quantize_model(model, samples)
    assert result.outputs_db["labels"] == result.outputs_db["scores"]
    assert [item.name for item in result.model.graph.output] == ["scores", "labels"]
    outputs = compare_models(model, result.model, samples)["outputs"]
    assert outputs["labels"]["sqnr_db"] == outputs["scores"]["sqnr_db"]


@pytest.mark.parametrize("output", ["mask", "count", "kept"])
def test_a_mask_or_a_count_is_a_decision_and_numbers_behind_one_are_not(
    output, make_model, layers, samples
):
    nodes, weights = layers
    weights |= {"least": np.float32(0.2), "none": np.float32(0)}
    nodes = [
        *nodes,
        helper.make_node("Greater", ["scores", "least"], ["mask"], "compare"),
        helper.make_node("Cast", ["mask"], ["ones"], "ones", to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["ones"], ["count"], "count", keepdims=0),
        helper.make_node("Where", ["mask", "scores", "none"], ["kept"], "keep"),
    ]
    types = {"mask": TensorProto.BOOL, "count": TensorProto.INT64, "kept": TensorProto.FLOAT}
    needed = {"mask": 4, "count": 6, "kept": 4}[output]
    nodes = [*nodes[:needed], nodes[-1]] if output == "kept" else nodes[:needed]
    model = make_model(nodes, weights, {"x": (1, 3, 8, 8)}, [])
    model.graph.output.append(helper.make_tensor_value_info(output, types[output], None))
    model = onnx.shape_inference.infer_shapes(model)
    assert find_measured(model) == ({} if output == "kept" else {output: ("scores",)})
    result = quantize_model(model, samples)
    figures = compare_models(model, result.model, samples)["outputs"][output]
    assert figures["sqnr_db"] == pytest.approx(result.outputs_db[output], abs=1.5)


@pytest.fixture
def peak_nodes():
    """What equals the maximum around it on "heat", "peaks", as CenterNet finds objects."""
    return [
        helper.make_node("Sigmoid", ["scores"], ["heat"], "heat"),
        helper.make_node(
            "MaxPool", ["heat"], ["around"], "around", kernel_shape=[3, 3], pads=[1] * 4
        ),
        helper.make_node("Equal", ["heat", "around"], ["is_peak"], "compare"),
        helper.make_node("Cast", ["is_peak"], ["ones"], "ones", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["heat", "ones"], ["peaks"], "peaks"),
    ]


def test_peaks_of_a_heatmap_are_measured_at_the_heatmap(make_model, layers, peak_nodes, samples):
    nodes, weights = layers
    weights |= {"most": np.array([5], np.int64), "flat": np.array([1, -1], np.int64)}
    nodes = [
        *nodes,
        *peak_nodes,
        helper.make_node("Reshape", ["peaks", "flat"], ["f"], "flatten"),
        helper.make_node("TopK", ["f", "most"], ["best", "places"], "best", axis=1),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["best", "places"], integers=["places"])
    sources = ("heat", "around")
    assert find_measured(model) == {"best": sources, "places": sources}
    result = quantize_model(model, samples)
    assert min(result.outputs_db.values()) > 30


def test_a_map_of_peaks_is_measured_at_the_heatmap(make_model, layers, peak_nodes, samples):
    """Radar and CenterNet heads often answer with the heatmap in which only peaks are left."""
    nodes, weights = layers
    model = make_model([*nodes, *peak_nodes], weights, {"x": (1, 3, 8, 8)}, ["peaks"])
    assert find_measured(model) == {"peaks": ("heat", "around")}
    result = quantize_model(model, samples)
    assert result.outputs_db["peaks"] > 30
    figures = compare_models(model, result.model, samples)["outputs"]["peaks"]
    assert figures["sqnr_db"] == pytest.approx(result.outputs_db["peaks"], abs=1.5)


def test_a_mask_by_a_fixed_threshold_is_measured_as_it_is(make_model, layers, peak_nodes):
    """A value above a constant goes on as a number: spikes, valid places."""
    nodes, weights = layers
    weights |= {"least": np.float32(0.2)}
    heat, _, _, ones, peaks = peak_nodes
    compare = helper.make_node("Greater", ["heat", "least"], ["is_peak"], "compare")
    model = make_model(
        [*nodes, heat, compare, ones, peaks], weights, {"x": (1, 3, 8, 8)}, ["peaks"]
    )
    assert find_measured(model) == {}


def test_peaks_that_were_joined_with_other_maps_are_measured_at_the_heatmap(
    make_model, layers, peak_nodes, samples
):
    """pytorchcv's CenterNet joins peaks and sizes, and cuts them apart again."""
    nodes, weights = layers
    weights |= {name: np.array([number]) for name, number in (("none", 0), ("one", 1), ("four", 4))}
    weights |= {"most": np.array([5]), "flat": np.array([1, -1]), "end": np.array([8])}
    weights["w2"] = np.random.default_rng(2).standard_normal((4, 8, 1, 1)).astype(np.float32)
    nodes = [
        *nodes,
        *peak_nodes,
        helper.make_node("Conv", ["r", "w2"], ["sizes"], "third"),
        helper.make_node("Concat", ["peaks", "sizes"], ["maps"], "join", axis=1),
        helper.make_node("Slice", ["maps", "none", "four", "one"], ["first_half"], "cut_peaks"),
        helper.make_node("Slice", ["maps", "four", "end", "one"], ["second_half"], "cut_sizes"),
        helper.make_node("Reshape", ["first_half", "flat"], ["f"], "flatten"),
        helper.make_node("Reshape", ["second_half", "flat"], ["s"], "flatten_sizes"),
        helper.make_node("TopK", ["f", "most"], ["best", "places"], "best", axis=1),
        helper.make_node("GatherElements", ["s", "places"], ["y"], "choose", axis=1),
    ]
    model = onnx.shape_inference.infer_shapes(
        make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["y"])
    )
    assert find_measured(model) == {"y": ("s", "heat", "around")}
    result = quantize_model(model, samples)
    assert result.outputs_db["y"] > 25
    assert "Concat" not in {node.op_type for node in result.model.graph.node}
    figures = compare_models(model, result.model, samples)["outputs"]["y"]
    assert figures["sqnr_db"] == pytest.approx(result.outputs_db["y"], abs=1.5)


def test_layers_behind_a_decision_are_quantized(make_model, layers, samples, monkeypatch):
    monkeypatch.setattr(vector_layers, "MOST_WEIGHTS", 0)
    monkeypatch.setattr(last_layers, "MOST_WORK", 0.0)
    nodes, weights = layers
    weights |= {"most": np.array([5], np.int64), "flat": np.array([1, -1], np.int64)}
    weights["w2"] = np.random.default_rng(2).standard_normal((5, 2)).astype(np.float32)
    nodes = [
        *nodes,
        helper.make_node("Reshape", ["scores", "flat"], ["f"], "flatten"),
        helper.make_node("TopK", ["f", "most"], ["best", "places"], "best", axis=1),
        helper.make_node("MatMul", ["best", "w2"], ["y"], "last"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["y"])
    assert find_measured(model) == {}
    assert "last" in [item.node for item in quantize_model(model, samples).layers]


def test_other_shapes_are_refused_in_words():
    with pytest.raises(CalibrationError, match=r"shape \[4\] in the float network and \[3\]"):
        SignalToNoise().update(np.ones(4, np.float32), np.ones(3, np.float32))
