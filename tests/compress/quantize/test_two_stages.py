"""Detectors in two stages: how many regions their second stage gets depends on the sample."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from artifacts.decided_outputs import read_choices
from compress.compare import compare_models
from compress.diagnose.api import diagnose_model
from compress.quantize.api import quantize_model
from compress.quantize.placement import last_layers, vector_layers
from compress.quantize.prepare import prepare_network
from compress.quantize.rounding import GPTQ, AdaRound, Nearest
from compress.quantize.settings import QuantizeSettings

SHAPE = (1, 3, 32, 32)
CELLS = 8


@pytest.fixture(autouse=True)
def all_in_integers(monkeypatch):
    monkeypatch.setattr(vector_layers, "MOST_WEIGHTS", 0)
    monkeypatch.setattr(last_layers, "MOST_WORK", 0.0)


@pytest.fixture
def make_detector(make_model):
    """A backbone, scores, and a head for the regions whose score is above a threshold."""

    def make(threshold):
        rng = np.random.default_rng(0)
        shapes = {"w0": (8, 3, 3, 3), "w1": (8, 8, 3, 3), "ws": (1, 8, 1, 1), "w2": (16, 8, 3, 3)}
        weights = {
            name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
            for name, shape in shapes.items()
        }
        weights["w3"] = rng.standard_normal((16, 4)).astype(np.float32)
        top, left = np.mgrid[:CELLS, :CELLS].reshape(2, -1).astype(np.float32)
        weights |= {
            "boxes": np.stack([top, left, top + 2.5, left + 2.5], 1)[None],
            "corners": np.stack([left, top, left + 2.5, top + 2.5], 1),
            "row": np.array([1, 1, -1]),
            "most": np.array([20]),
            "overlap": np.array([0.3], np.float32),
            "threshold": np.array([threshold], np.float32),
            "first": np.array(0),
            "third": np.array(2),
        }
        twice = {"strides": [2, 2], "pads": [1] * 4}
        nodes = [
            helper.make_node("Conv", ["x", "w0"], ["c0"], "stem", **twice),
            helper.make_node("Relu", ["c0"], ["r0"], "relu0"),
            helper.make_node("Conv", ["r0", "w1"], ["c1"], "body", **twice),
            helper.make_node("Relu", ["c1"], ["f"], "relu1"),
            helper.make_node("Conv", ["f", "ws"], ["s"], "scores"),
            helper.make_node("Reshape", ["s", "row"], ["line"], "reshape"),
            helper.make_node(
                "NonMaxSuppression",
                ["boxes", "line", "most", "overlap", "threshold"],
                ["kept"],
                "suppress",
            ),
            helper.make_node("Gather", ["kept", "third"], ["places"], "places", axis=1),
            helper.make_node("Gather", ["kept", "first"], ["pictures"], "pictures", axis=1),
            helper.make_node("Gather", ["corners", "places"], ["regions"], "regions"),
            helper.make_node(
                "RoiAlign",
                ["f", "regions", "pictures"],
                ["cut"],
                "align",
                output_height=3,
                output_width=3,
            ),
            helper.make_node("Conv", ["cut", "w2"], ["c2"], "head"),
            helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
            helper.make_node("Flatten", ["r2"], ["v"], "flatten"),
            helper.make_node("MatMul", ["v", "w3"], ["y"], "last"),
        ]
        return make_model(nodes, weights, {"x": SHAPE}, ["y", "s"])

    return make


@pytest.fixture
def pictures():
    rng = np.random.default_rng(1)
    return [
        {"x": (gain * rng.standard_normal(SHAPE)).astype(np.float32)}
        for gain in np.linspace(0.1, 3, 12)
    ]


@pytest.fixture
def counts(run_model):
    """Returns how many regions a detector finds on each picture."""

    def count(model, pictures):
        return [len(run_model(model, feeds)["y"]) for feeds in pictures]

    return count


@pytest.mark.parametrize("target", ["tensorrt", "openvino", "onnxruntime"])
@pytest.mark.parametrize("rounding", [Nearest(), GPTQ(), AdaRound()])
def test_samples_with_more_fewer_and_no_regions(target, rounding, make_detector, pictures, counts):
    model = make_detector(0.1)
    found = counts(model, pictures)
    assert found[0] == 0
    assert len(set(found)) > 3
    result = quantize_model(model, pictures, QuantizeSettings(target=target, rounding=rounding))
    assert {"stem", "head", "last"} <= {item.node for item in result.layers}
    compared = compare_models(model, result.model, pictures)["outputs"]
    for name in ("y", "s"):
        assert compared[name]["sqnr_db"] > 25
        assert result.outputs_db[name] == pytest.approx(compared[name]["sqnr_db"], abs=1.5)


@pytest.mark.parametrize("options", [{"prefer": "quality"}, {"weights": "int4"}])
def test_searches_and_four_bits(options, make_detector, pictures):
    model = make_detector(0.1)
    settings = QuantizeSettings(target="openvino", **options)
    result = quantize_model(model, pictures, settings, clock=lambda models: [1.0 for _ in models])
    assert min(result.outputs_db.values()) > 15


def test_a_diagnosis(make_detector, pictures):
    diagnosis = diagnose_model(make_detector(0.1), pictures)
    assert {item.node for item in diagnosis.layers} == {"stem", "body", "scores", "head", "last"}


def test_the_mean_over_samples_is_of_those_in_which_something_is_found(
    make_detector, pictures, counts
):
    model = make_detector(0.1)
    result = quantize_model(model, pictures, QuantizeSettings())
    some = [feeds for feeds, count in zip(pictures, counts(model, pictures), strict=True) if count]
    every, found = (
        compare_models(model, result.model, samples)["outputs"]["y"] for samples in (pictures, some)
    )
    assert len(some) < len(pictures)
    for figure in ("sqnr_db", "sqnr_mean_db", "sqnr_worst_db"):
        assert every[figure] == pytest.approx(found[figure])
    assert pictures[every["worst_sample"]] is some[found["worst_sample"]]


def test_layers_that_no_sample_reaches_stay_in_float(make_detector, pictures, caplog):
    model = make_detector(100.0)
    result = quantize_model(model, pictures, QuantizeSettings())
    assert {item.node for item in result.layers} == {"stem", "body", "scores"}
    assert "no calibration sample reaches" in caplog.text
    compared = compare_models(model, result.model, pictures)["outputs"]
    assert compared["y"]["sqnr_mean_db"] == compared["y"]["sqnr_db"] == 200
    assert compared["y"]["is_constant"]


def test_a_draft_of_one_sample_warns_of_nothing(make_detector, pictures, caplog):
    prepare_network(make_detector(0.1), pictures[:1], QuantizeSettings(), is_draft=True)
    assert not caplog.text


def test_what_a_branch_chooses_is_a_choice():
    """As torchvision exports it: no box, no NonMaxSuppression."""

    def branch(nodes, outputs):
        values = [
            helper.make_tensor_value_info(name, kind, [None]) for name, kind in outputs.items()
        ]
        return helper.make_graph(nodes, "branch", [], values)

    suppress = helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["rows"])
    double = helper.make_node("Add", ["scores", "scores"], ["twice"])
    kinds = {"rows": TensorProto.INT64, "twice": TensorProto.FLOAT}
    choosing = branch([suppress, double], kinds)
    other = branch([double], {"twice": TensorProto.FLOAT})
    nodes = [
        helper.make_node(
            "If", ["any"], ["places", "values"], then_branch=choosing, else_branch=choosing
        ),
        helper.make_node("If", ["any"], ["doubled"], then_branch=other, else_branch=other),
        helper.make_node("NonZero", ["mask"], ["where"]),
    ]
    assert read_choices(nodes, ()) == ("places", "where")
    assert read_choices(nodes, ("where",)) == ("places",)
