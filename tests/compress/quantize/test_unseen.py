"""Tensors of few values reach farther in the field than calibration has shown."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.observers import ObservedTensor, unseen
from compress.quantize.observers.unseen import ENOUGH_VALUES, MOST_GROWTH, reach_unseen


def observe(values):
    seen = ObservedTensor.of([np.asarray(values, np.float32)])
    return seen, (min(seen.low, 0.0), max(seen.high, 0.0))


@given(seed=st.integers(0, 200), count=st.integers(64, 2000))
def test_few_normal_values_foretell_where_many_end(seed, count):
    rng = np.random.default_rng(seed)
    seen, ends = observe(rng.standard_normal(count))
    low, high = reach_unseen(seen, ends)
    assert low < ends[0]
    assert ends[1] < high <= (1 + MOST_GROWTH) * ends[1]
    many = rng.standard_normal(ENOUGH_VALUES)
    clipped = [float(np.square(many - np.clip(many, *each)).sum()) for each in (ends, (low, high))]
    assert clipped[1] <= clipped[0]


def test_the_foretold_end_is_about_right_on_average():
    rng = np.random.default_rng(0)
    ends = [observe(rng.standard_normal(300)) for _ in range(50)]
    foretold = np.mean([reach_unseen(seen, range_)[1] for seen, range_ in ends])
    true = np.mean([rng.standard_normal(ENOUGH_VALUES).max() for _ in range(50)])
    assert foretold == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize(
    "values",
    [
        np.clip(np.random.default_rng(0).standard_normal(500), -1, 1),
        np.eye(20),
        np.zeros(50),
        np.random.default_rng(0).standard_normal(ENOUGH_VALUES),
    ],
    ids=["clamped", "one-hot", "zeros", "many"],
)
def test_what_has_shown_its_end_keeps_it(values):
    seen, ends = observe(values)
    assert reach_unseen(seen, ends) == ends


def test_what_is_never_negative_stays_so():
    values = np.maximum(np.random.default_rng(0).standard_normal(400), 0)
    seen, ends = observe(values)
    low, high = reach_unseen(seen, ends)
    assert low == 0
    assert high > ends[1]


def test_a_policy_keeps_decibels_on_what_it_has_not_seen(make_model, monkeypatch):
    rng = np.random.default_rng(0)
    weights = {
        name: (rng.standard_normal(shape) / 5).astype(np.float32)
        for name, shape in (("w0", (24, 32)), ("w1", (32, 32)), ("w2", (32, 4)))
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["ra"], "relu"),
        helper.make_node("MatMul", ["ra", "w1"], ["b"], "second"),
        helper.make_node("Tanh", ["b"], ["tb"], "tanh"),
        helper.make_node("MatMul", ["tb", "w2"], ["y"], "third"),
    ]
    model = make_model(nodes, weights, {"x": (1, 24)}, ["y"])
    samples = [{"x": rng.standard_normal((1, 24)).astype(np.float32)} for _ in range(212)]

    def held_out_db():
        result = quantize_model(model, samples[:12])
        return compare_models(model, result.model, samples[12:])["outputs"]["y"]["sqnr_db"]

    widened = held_out_db()
    monkeypatch.setattr(unseen, "ENOUGH_VALUES", 0)
    assert widened > held_out_db() + 2
