"""Layers that make most of the noise of an output, found in few runs and kept in float."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.decision_log import DecisionLog
from compress.quantize.search.dominant_layers import POOR_DB, find_dominant
from compress.quantize.settings import QuantizeSettings
from compress.quantize.work import Work
from compress.sqnr import SignalToNoise

SETTINGS = QuantizeSettings(target="openvino", equalization=False)


def make_clock(slow_ms):
    """A machine on which the float network takes 20 ms, INT8 10 ms, and the third `slow_ms`."""
    return lambda models: [20.0, 10.0, slow_ms][: len(models)]


def test_the_layer_that_makes_most_of_the_noise_is_found(outlier_model):
    model, samples = outlier_model
    work = Work.begin(model, samples, SETTINGS, None, DecisionLog())
    (found,) = find_dominant(work, work.decide(work.prepared)).items()
    layer, shares = found
    assert (layer, list(shares)) == ("reader", ["left"])
    assert 0.5 < shares["left"] <= 1.0


@pytest.mark.parametrize(
    ("noise", "expected"),
    [
        ((0, 0.2, 0.9, 1, 1), {"wide": 0.7}),
        ((0, 1, 6, 1, 1), {"wide": 5 / 6}),
        ((0, 2, 4, 5, 1), {}),
    ],
    ids=["rises", "is taken away again", "rises everywhere and is taken away"],
)
def test_noise_that_layers_behind_take_away_counts(noise, expected, outlier_model, monkeypatch):
    """Weights may make up for what came before them: no layer makes several times all noise."""
    model, samples = outlier_model
    monkeypatch.setattr(
        "compress.quantize.search.dominant_layers._Beginnings._until",
        lambda self, count: self._known.setdefault(count, {"left": noise[count], "right": 0.0}),
    )
    work = Work.begin(model, samples, SETTINGS, None, DecisionLog())
    found = find_dominant(work, work.decide(work.prepared))
    assert found == {layer: {"left": pytest.approx(share)} for layer, share in expected.items()}


@pytest.mark.parametrize(("left", "is_found"), [(0.9, False), (0.5, True)])
def test_a_layer_is_found_only_if_the_output_gains_decibels(
    left, is_found, outlier_model, monkeypatch
):
    """In the network without it, layers behind may make the noise that it made."""
    model, samples = outlier_model
    beginnings = "compress.quantize.search.dominant_layers._Beginnings"
    monkeypatch.setattr(
        f"{beginnings}.measure_without",
        lambda self, layers: {name: left * value for name, value in self.whole.items()},
    )
    work = Work.begin(model, samples, SETTINGS, None, DecisionLog())
    assert bool(find_dominant(work, work.decide(work.prepared))) is is_found


def test_one_timing_is_for_all_of_it(outlier_model):
    timed = []
    clock = make_clock(11.0)
    model, samples = outlier_model
    settings = replace(SETTINGS, symmetric=False)
    quantize_model(
        model, samples, settings, clock=lambda models: timed.append(len(models)) or clock(models)
    )
    assert timed == [3]


def test_it_stays_in_float_where_that_costs_little_time(outlier_model):
    model, samples = outlier_model
    result = quantize_model(model, samples, SETTINGS, clock=make_clock(11.0))
    assert set(result.precision.float_nodes) == {"reader"}
    assert result.precision.chosen.latency_ms == 11.0
    assert {item.node for item in result.layers} == {"stem", "wide", "calm"}
    reasons = {item.node: item.reason for item in result.declined}
    assert reasons["reader"] == "it makes most of the noise of left"
    assert result.costly.int8_db["left"] < POOR_DB < result.outputs_db["left"]
    assert result.costly.float_db["left"] == result.outputs_db["left"]


@pytest.mark.parametrize("clock", [make_clock(13.0), None])
def test_it_is_named_where_that_costs_much_time_or_nothing_is_timed(outlier_model, clock):
    model, samples = outlier_model
    result = quantize_model(model, samples, SETTINGS, clock=clock)
    assert {item.node for item in result.layers} == {"stem", "wide", "reader", "calm"}
    assert {name: list(shares) for name, shares in result.costly.layers.items()} == {
        "reader": ["left"]
    }
    assert result.outputs_db["left"] == result.costly.int8_db["left"]
    assert result.costly.float_db == {}


def test_good_networks_are_not_looked_into(residual_model, samples, monkeypatch):
    monkeypatch.setattr("compress.quantize.search.dominant_layers.find_dominant", pytest.fail)
    result = quantize_model(residual_model, samples, SETTINGS)
    assert result.costly is None
    assert min(result.outputs_db.values()) > POOR_DB


@pytest.fixture
def linear_model(make_model):
    """Linear layers with an offset in an Add of its own, which takes what the mean loses."""
    rng = np.random.default_rng(0)
    names = ("first", "second", "third")
    weights = {f"w_{name}": rng.standard_normal((12, 12)).astype(np.float32) for name in names}
    weights |= {f"b_{name}": rng.standard_normal(12).astype(np.float32) for name in names}
    nodes, tensor = [], "x"
    for name in names:
        nodes += [
            helper.make_node("MatMul", [tensor, f"w_{name}"], [f"m_{name}"], name),
            helper.make_node("Add", [f"m_{name}", f"b_{name}"], [f"a_{name}"], f"add_{name}"),
            helper.make_node("Relu", [f"a_{name}"], [f"r_{name}"], f"relu_{name}"),
        ]
        tensor = f"r_{name}"
    return make_model(nodes, weights, {"x": (1, 20, 12)}, [tensor])


@pytest.mark.parametrize("name", ["residual_model", "linear_model"])
def test_a_beginning_is_what_the_streaming_pass_walked_behind(name, request, run_model):
    model = request.getfixturevalue(name)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    work = Work.begin(model, samples, SETTINGS, None, DecisionLog())
    prepared, decisions = work.prepared, work.decide(work.prepared)
    known = {item.node: item.sqnr_db for item in decisions.layers}
    reference = prepared.write_float()
    assert len(prepared.quantized) > 2
    for count, item in enumerate(prepared.quantized[:-1], 1):
        if item.node not in known:
            continue
        tensor = prepared.graph.node(item.node).output[0]
        models = (reference, prepared.write_beginning(decisions, count))
        watched = [watch(one, tensor) for one in models]
        meter = SignalToNoise()
        for sample in samples:
            meter.update(*(run_model(one, sample)[tensor] for one in watched))
        assert meter.sqnr_db == pytest.approx(known[item.node], abs=0.1), item.node
    whole = prepared.write_beginning(decisions, 0)
    assert not any("Linear" in node.op_type for node in whole.graph.node)


def watch(model, tensor):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if tensor not in {item.name for item in copy.graph.output}:
        copy.graph.output.append(onnx.ValueInfoProto(name=tensor))
    return copy


@pytest.mark.parametrize(
    ("prefer", "slower", "stays"),
    [("balanced", 1.15, True), ("balanced", 1.3, False), ("quality", 1.15, True)],
)
def test_a_preference_for_quality_keeps_what_no_preference_would_keep(
    prefer, slower, stays, outlier_model
):
    model, samples = outlier_model

    def measure(network):
        makers = {name: node.op_type for node in network.graph.node for name in node.output}
        layers = [node for node in network.graph.node if node.op_type in ("Conv", "Gemm")]
        in_float = {node.name for node in layers if makers.get(node.input[1]) is None}
        if len(in_float) == len(layers):
            return 20.0
        return 10.0 * slower if in_float == {"reader"} else 10.0 if not in_float else 15.0

    settings = replace(SETTINGS, prefer=prefer, symmetric=False)
    result = quantize_model(model, samples, settings, clock=lambda models: [*map(measure, models)])
    assert ("reader" in result.precision.float_nodes) is stays
