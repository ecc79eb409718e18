"""What a layer costs in float is learnt from whole networks, and spent where it brings most."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import helper

from artifacts.synthetic_pictures import draw_pictures
from compress.quantize.prepare import prepare_network
from compress.quantize.search.candidates import gain_db, list_edges, mean_db, predict_db
from compress.quantize.search.proposals import (
    ALTERED,
    ALTERED_ROUNDS,
    FOCUSED,
    SPREAD,
    Proposer,
    Round,
    list_rounds,
)
from compress.quantize.search.sensitivity import SensitivityMatrix, take_worse
from compress.quantize.search.stress import brighten, enlarge_quarters, make_unlike
from compress.quantize.search.time_model import TimeModel
from compress.quantize.settings import PREFERENCES, Allowance, QuantizeSettings

NAMES = [f"layer{index}" for index in range(30)]


def time_sets(sets, costs_ms, int8_ms=10.0, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    exact = [int8_ms + sum(costs_ms[NAMES.index(name)] for name in kept) for kept in sets]
    return [value * (1 + noise * rng.standard_normal()) for value in exact]


def fixed(worth):
    """Returns what layers bring, whatever else is in float."""
    return lambda is_kept: worth


def draw_sets(count, seed=0):
    rng = np.random.default_rng(seed)
    drawn = [frozenset(rng.choice(NAMES, rng.integers(2, 20), replace=False)) for _ in range(count)]
    return [frozenset(), *drawn]


def test_nothing_timed_leaves_what_the_work_says():
    model = TimeModel(NAMES[:2], np.array([3.0, 1.0]), [], saved_ms=8.0)
    np.testing.assert_allclose(model.layer_costs_ms, [5.0, 3.0])


def test_timings_reveal_a_layer_that_costs_nothing_and_one_that_costs_much():
    costs = np.full(30, 0.2)
    costs[3], costs[7] = 0.0, 2.0
    model = TimeModel(NAMES, np.ones(30), [], saved_ms=float(costs.sum()))
    sets = draw_sets(40)
    model.fit(sets, time_sets(sets, costs, noise=0.003))
    assert np.argmax(model.layer_costs_ms) == 7
    assert model.layer_costs_ms[7] == pytest.approx(2.0, abs=0.5)
    assert model.layer_costs_ms[3] < np.median(model.layer_costs_ms)


@pytest.mark.parametrize(("count", "share"), [(10, 0.95), (25, 0.6)])
def test_predictions_for_other_sets_get_better(count, share):
    """Over 20 machines, the error on sets that were not timed falls as more are timed."""
    errors = np.array([_prediction_errors(count, seed) for seed in range(20)]).mean(axis=0)
    assert errors[1] < share * errors[0]


def _prediction_errors(count, seed):
    """Returns the root mean square error in ms before and after `count` sets were timed."""
    costs = np.random.default_rng(seed).gamma(1.0, 0.3, 30)
    model = TimeModel(NAMES, np.ones(30), [], saved_ms=float(costs.sum()))
    before = model.layer_costs_ms
    sets = draw_sets(count, seed)
    model.fit(sets, time_sets(sets, costs, noise=0.005, seed=seed))
    fresh = draw_sets(40, seed + 1000)[1:]
    truth = np.array(time_sets(fresh, costs))
    guesses = [np.array(time_sets(fresh, guess)) for guess in (before, model.layer_costs_ms)]
    return [np.sqrt(np.mean((guess - truth) ** 2)) for guess in guesses]


def test_a_budget_goes_to_the_most_worth_per_time():
    model = TimeModel(NAMES[:4], np.array([4.0, 1.0, 1.0, 4.0]), [], saved_ms=10.0)
    worth = fixed(np.array([5.0, 4.0, 0.1, 6.0]))
    assert model.spend(worth, 2.0) == {"layer1"}
    assert model.spend(worth, 5.1) == {"layer1", "layer3"}
    assert model.spend(worth, 10.1) == set(NAMES[:4])


def test_timings_reveal_what_crossing_costs_and_layers_are_kept_in_one_piece():
    """A chain in which each crossing costs 1 ms and no layer costs anything by itself."""
    edges = [(one, other, 100) for one, other in itertools.pairwise(NAMES)]

    def latency(kept):
        inside = [name in kept for name in NAMES]
        return 10.0 + sum(one != other for one, other in itertools.pairwise(inside))

    model = TimeModel(NAMES, np.ones(30), edges, saved_ms=6.0)
    ends = [frozenset(NAMES[:size]) for size in (3, 9, 15, 21)]
    sets = draw_sets(30) + ends
    model.fit(sets, [latency(kept) for kept in sets])
    isolated, joined = frozenset(NAMES[5:15:2]), frozenset(NAMES[5:10])
    assert model.predict_ms(isolated) > 3 * model.predict_ms(joined)
    worth = np.ones(30)
    worth[10:15] = 1.5
    kept = model.spend(fixed(worth), 2.5)
    assert latency(kept) - 10.0 <= 2.0
    assert len(kept) >= 5


def test_edges_pass_through_what_is_not_quantized(make_model):
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first"),
        helper.make_node("Sigmoid", ["a"], ["b"], "between"),
        helper.make_node("Conv", ["b", "w1"], ["y"], "second"),
    ]
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((4, 4, 1, 1)).astype(np.float32) for name in ("w0", "w1")}
    model = make_model(nodes, weights, {"x": (1, 4, 6, 5)}, ["y"])
    samples = [{"x": rng.standard_normal((1, 4, 6, 5)).astype(np.float32)}]
    prepared = prepare_network(model, samples, QuantizeSettings(target="openvino"))
    assert list_edges(prepared) == [("first", "second", 4 * 6 * 5)]


@pytest.fixture
def propose_on(make_model):
    """A chain of twelve equal layers, of which the first makes the most noise, and its proposer."""
    nodes = [
        helper.make_node("Conv", [f"x{place}", f"w{place}"], [f"x{place + 1}"], f"conv{place}")
        for place in range(12)
    ]
    rng = np.random.default_rng(0)
    weights = {
        f"w{place}": rng.standard_normal((4, 4, 1, 1)).astype(np.float32) for place in range(12)
    }
    model = make_model(nodes, weights, {"x0": (1, 4, 6, 5)}, ["x12"])
    samples = [{"x0": rng.standard_normal((1, 4, 6, 5)).astype(np.float32)}]
    prepared = prepare_network(model, samples, QuantizeSettings(target="tensorrt"))
    names = tuple(item.node for item in prepared.quantized)
    noise = np.geomspace(1e-2, 1e-4, len(names))[:, None]
    matrix = SensitivityMatrix(
        layers=names, outputs=("x12",), noise=noise, owners={}, heads={"x12": ("x12",)}
    )
    return Proposer(prepared, matrix, float_ms=2.2, int8_ms=1.0).propose, matrix


@pytest.fixture
def pictures_and_pose():
    rng = np.random.default_rng(0)
    pose = np.ones((1, 6), np.float32)
    return [{"image": draw_pictures((1, 3, 9, 8), rng), "pose": pose} for _ in range(5)]


def test_altered_pictures_keep_the_range_and_other_inputs(pictures_and_pose):
    pictures = np.stack([sample["image"] for sample in pictures_and_pose])
    altered = make_unlike(pictures_and_pose)
    assert len(altered) == len(pictures)
    for sample in altered:
        assert sample["image"].shape == pictures.shape[1:]
        assert sample["image"].dtype == np.float32
        assert pictures.min() <= sample["image"].min() <= sample["image"].max() <= pictures.max()
        assert (sample["pose"] == 1).all()
    assert all(
        (sample["image"] == picture).all()
        for sample, picture in zip(pictures_and_pose, pictures, strict=True)
    )


def test_the_quarter_of_each_corner_is_enlarged(pictures_and_pose):
    corners = np.array([[1, 2], [3, 4]], np.float32).repeat(4, 0).repeat(4, 1)
    samples = [{"image": np.broadcast_to(corners, (1, 3, 8, 8)).copy()} for _ in range(5)]
    found = [float(np.unique(sample["image"]).item()) for sample in enlarge_quarters(samples)]
    assert found == [1, 3, 2, 4, 1]


def test_brighter_pictures_are_brighter(pictures_and_pose):
    for sample, brighter in zip(pictures_and_pose, brighten(pictures_and_pose), strict=True):
        picture = sample["image"]
        assert brighter["image"].mean() > picture.mean() + 0.2 * np.ptp(picture)


def test_both_ways_to_alter_take_turns(pictures_and_pose):
    altered, brighter = make_unlike(pictures_and_pose), brighten(pictures_and_pose)
    quarters = enlarge_quarters(pictures_and_pose)
    np.testing.assert_array_equal(altered[1]["image"], brighter[1]["image"])
    np.testing.assert_array_equal(altered[3]["image"], brighter[3]["image"])
    np.testing.assert_array_equal(altered[0]["image"], quarters[0]["image"])


def test_without_a_picture_nothing_is_altered():
    assert make_unlike([{"x": np.zeros((1, 5), np.float32)}]) == []
    assert make_unlike([{"x": np.zeros((1, 1, 5, 5), np.int64)}]) == []


def test_the_worse_of_two_matrices_is_taken_entry_by_entry():
    one, other = (
        SensitivityMatrix(
            layers=("a", "b"),
            outputs=("y",),
            noise=np.array(noise),
            owners={},
            heads={"y": ("y",)},
        )
        for noise in ([[1.0], [2.0]], [[3.0], [0.5]])
    )
    np.testing.assert_array_equal(take_worse(one, other).noise, [[3.0], [2.0]])


def test_drawn_costs_differ_where_nothing_was_timed_and_agree_where_much_was():
    costs = np.full(30, 0.2)
    model = TimeModel(NAMES, np.ones(30), [], saved_ms=6.0)
    ends = [frozenset(NAMES[:1]), frozenset(NAMES[1:2])]
    sets = [frozenset(), *(ends[place % 2] for place in range(200))]
    model.fit(sets, time_sets(sets, costs, noise=0.001))
    rng = np.random.default_rng(0)
    drawn = np.array([model.draw(rng).layer_costs_ms for _ in range(400)])
    spread = drawn.std(axis=0)
    assert spread[:2].max() < 0.7 * spread[2:].min()
    np.testing.assert_allclose(drawn.mean(axis=0), model.layer_costs_ms, atol=0.06)


def test_what_is_kept_anyway_costs_nothing_of_the_budget():
    model = TimeModel(NAMES[:4], np.array([4.0, 1.0, 1.0, 4.0]), [], saved_ms=10.0)
    worth = fixed(np.array([5.0, 4.0, 0.1, 6.0]))
    assert model.spend(worth, 2.0, frozenset({"layer3"})) == {"layer1", "layer3"}


@pytest.mark.parametrize(("has_contracts", "counts"), [(False, [5, 0]), (True, [2, 3])])
def test_contracts_spread_a_part_of_the_proposals(has_contracts, counts):
    rounds = list_rounds(PREFERENCES["quality"], has_contracts=has_contracts)
    kinds = [item.shares for item in rounds]
    assert [kinds.count(FOCUSED), kinds.count(SPREAD)] == counts
    assert kinds[-ALTERED_ROUNDS:] == [()] * ALTERED_ROUNDS
    assert not list_rounds(PREFERENCES["speed"], has_contracts=False)


def test_layers_that_bring_nothing_stay_in_integers():
    model = TimeModel(NAMES[:4], np.ones(4), [], saved_ms=1.0)
    assert model.spend(fixed(np.array([0.0, 1.0, 0.0, 2.0])), 5.0) == {"layer1", "layer3"}


@given(
    noise=arrays(np.float64, (6, 3), elements=st.floats(1e-9, 1.0)),
    is_kept=arrays(np.bool_, 6),
)
def test_what_a_layer_brings_is_what_is_predicted_with_it(noise, is_kept):
    is_kept[-1] = False
    names = NAMES[:6]
    heads = {head: (head,) for head in "abc"}
    matrix = SensitivityMatrix(
        layers=tuple(names), outputs=tuple(heads), noise=noise, owners={}, heads=heads
    )
    kept = frozenset(name for name, is_in in zip(names, is_kept, strict=True) if is_in)
    before = mean_db(predict_db(matrix, kept))
    gains = gain_db(matrix.head_noise(), is_kept)
    for name, gain in zip(names, gains, strict=True):
        if name not in kept:
            with_it = mean_db(predict_db(matrix, kept | {name}))
            assert gain == pytest.approx(with_it - before, abs=1e-6)


def test_the_best_sets_are_altered_within_the_limit(propose_on):
    """Layers cost what the model expects: each set spends all that the limit allows."""
    propose, matrix = propose_on
    costs = np.full(12, 0.1)
    names = matrix.layers

    def latency(kept):
        return 1.0 + sum(costs[names.index(name)] for name in kept)

    poor, good = frozenset(names[9:12]), frozenset(names[2:5])
    known = [frozenset(names[start::step]) for step in (1, 2, 3, 4, 6) for start in range(step)]
    latencies = {kept: latency(kept) for kept in (frozenset(), poor, good, *known)}
    wanted = Round(Allowance(saved_share=0.26, slowdown=1.0))
    found = [kept for _ in range(3) for kept in propose(latencies, wanted)]
    assert len(found) == 3 * ALTERED
    assert all(latency(kept) <= 1.0 + 0.26 * 1.2 + 1e-9 for kept in found)
    best = max(mean_db(predict_db(matrix, kept)) for kept in found)
    assert best > mean_db(predict_db(matrix, good))
