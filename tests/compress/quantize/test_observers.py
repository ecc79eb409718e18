"""One contract over every observer."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from compress.quantize.observers import (
    OBSERVERS,
    ByOutputError,
    Entropy,
    MeanSquaredError,
    MinMax,
    ObservedTensor,
    Percentile,
    factors,
    mse,
)
from compress.quantize.observers.contract import BINS
from compress.quantize.observers.entropy import divergence
from compress.quantize.observers.mse import squared_errors
from compress.quantize.observers.unseen import ENOUGH_VALUES, MOST_GROWTH
from compress.quantize.qparams import (
    IntegerGrid,
    fake_quantize,
    qparams_for_range,
    scales_for_ranges,
)

SIGNED, UNSIGNED = IntegerGrid(), IntegerGrid(is_signed=False)


def heavy_tailed(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_t(3, (4, 50, 50)).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("symmetric", [True, False])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), shift=st.floats(-3, 3) | st.sampled_from([-500.0, 500.0]))
def test_the_range_holds_zero_and_lies_in_what_was_seen(name, symmetric, seed, shift):
    arrays = [array[:1, :9, :9] + np.float32(shift) for array in heavy_tailed(seed)]
    seen = ObservedTensor.of(arrays)
    low, high = OBSERVERS[name]().choose_range(seen, SIGNED, symmetric=symmetric)
    farther = 1 + MOST_GROWTH if name in ("mse", "auto") else 1
    assert farther * min(seen.low, 0) <= low <= 0 <= high <= farther * max(seen.high, 0)
    assert high > low


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("value", [0.0, 2.5, -1.5])
def test_a_constant_tensor_is_represented(name, value):
    seen = ObservedTensor.of([np.full((1, 3, 4, 4), value, np.float32)])
    low, high = OBSERVERS[name]().choose_range(seen, SIGNED, symmetric=True)
    qparams = qparams_for_range(low, high, SIGNED, symmetric=True)
    assert qparams.low <= value <= qparams.high + 1e-6


@pytest.mark.parametrize("name", OBSERVERS)
def test_a_tensor_that_hardly_varies_is_represented(name):
    values = np.linspace(2.5, np.nextafter(np.float32(2.5), np.float32(3)) + 1e-5, 100)
    seen = ObservedTensor.of([values.astype(np.float32)])
    low, high = OBSERVERS[name]().choose_range(seen, SIGNED, symmetric=True)
    assert low == 0.0
    assert high >= 2.5


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("grid", [SIGNED, UNSIGNED, IntegerGrid(bits=4)])
def test_mse_is_never_worse_than_the_others(grid, symmetric):
    seen = ObservedTensor.of(heavy_tailed())

    def error(observer):
        ends = observer.choose_range(seen, grid, symmetric=symmetric)
        steps = scales_for_ranges(*np.array(ends)[:, None], grid, symmetric=symmetric)
        return squared_errors(seen, *steps, grid)[0]

    best = error(MeanSquaredError(headroom=1.0))
    assert best <= error(MinMax())
    assert best <= error(Percentile(percent=99.9)) * 1.02


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    shift=st.floats(-3, 3),
    degrees=st.sampled_from([1, 2, 3, 30]),
    bits=st.sampled_from([4, 8, 16]),
    is_signed=st.booleans(),
    symmetric=st.booleans(),
)
def test_a_search_that_ends_early_finds_what_a_whole_one_does(
    seed, shift, degrees, bits, is_signed, symmetric
):
    values = np.random.default_rng(seed).standard_t(degrees, 500) + shift
    seen = ObservedTensor.of([values.astype(np.float32)])
    grid = IntegerGrid(bits=bits, is_signed=is_signed)
    early = MeanSquaredError().choose_range(seen, grid, symmetric=symmetric)
    with patch.object(factors, "TRIED_AT_ONCE", len(factors.FACTORS)):
        whole = MeanSquaredError().choose_range(seen, grid, symmetric=symmetric)
    assert early == whole


def test_a_search_ends_where_nothing_can_be_gained():
    seen, tried = ObservedTensor.of(heavy_tailed()), []
    errors = patch.object(mse, "squared_errors", lambda *args: tried.append(args) or real(*args))
    real = mse.squared_errors
    with errors:
        MeanSquaredError().choose_range(seen, IntegerGrid(bits=16), symmetric=True)
    assert sum(len(scales) for _, scales, *_ in tried) < len(factors.FACTORS)


def test_min_max_covers_every_value():
    arrays = heavy_tailed()
    seen = ObservedTensor.of(arrays)
    low, high = MinMax().choose_range(seen, SIGNED, symmetric=False)
    assert low == min(array.min() for array in arrays)
    assert high == max(array.max() for array in arrays)


@pytest.mark.parametrize("percent", [90.0, 99.0, 99.9])
def test_a_percentile_leaves_out_that_share(percent):
    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    low, high = Percentile(percent=percent).choose_range(
        ObservedTensor.of([values]), SIGNED, symmetric=True
    )
    outside = np.mean(np.abs(values) > max(high, -low)) * 100
    assert outside == pytest.approx(100 - percent, abs=0.1)


@pytest.mark.parametrize("percent", [90.0, 99.0, 99.9])
def test_a_percentile_of_asymmetric_integers_leaves_out_half_of_the_share_at_each_end(percent):
    values = np.random.default_rng(0).exponential(1, 100_000).astype(np.float32) - 2
    low, high = Percentile(percent=percent).choose_range(
        ObservedTensor.of([values]), SIGNED, symmetric=False
    )
    half = (100 - percent) / 200
    assert low == pytest.approx(np.quantile(values, half), abs=0.01)
    assert np.mean(values > high) == pytest.approx(half, abs=2e-4)


@pytest.mark.parametrize("percent", [0, 50, 100.1, -1, 0.9999])
def test_a_senseless_percentile_is_refused(percent):
    with pytest.raises(InputError, match="percentile"):
        Percentile(percent=percent)


@pytest.mark.parametrize(("headroom", "bits"), [(1.1, 8), (1.5, 4)])
def test_headroom_widens_the_range_up_to_what_was_seen(headroom, bits):
    seen, grid = ObservedTensor.of(heavy_tailed()), IntegerGrid(bits=bits)
    tight = MeanSquaredError(headroom=1.0).choose_range(seen, grid, symmetric=True)
    wide = MeanSquaredError(headroom=headroom).choose_range(seen, grid, symmetric=True)
    assert wide[1] == pytest.approx(tight[1] * headroom)
    even = ObservedTensor.of([np.linspace(-1, 1, ENOUGH_VALUES, dtype=np.float32)])
    assert MeanSquaredError(headroom=5).choose_range(even, SIGNED, symmetric=True) == (-1, 1)


def test_few_values_let_the_range_reach_beyond_them_unless_told_otherwise():
    values = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    seen = ObservedTensor.of([values])
    reached = MeanSquaredError().choose_range(seen, SIGNED, symmetric=False)
    within = MeanSquaredError(reaches_unseen=False).choose_range(seen, SIGNED, symmetric=False)
    assert reached[0] < seen.low <= within[0]
    assert within[1] <= seen.high < reached[1]


def test_levels_of_pixels_do_not_fall_halfway_between_the_steps():
    pixels = np.arange(256, dtype=np.float32)
    signed, plain = pixels / np.float32(127.5) - 1, pixels / np.float32(255)

    def error_in_steps(values):
        chosen = MeanSquaredError().choose_range(
            ObservedTensor.of([values]), UNSIGNED, symmetric=False
        )
        q = qparams_for_range(*chosen, UNSIGNED, symmetric=False)
        return np.sqrt(np.mean((fake_quantize(values, q) - values) ** 2)) / q.scale

    assert error_in_steps(signed) < 0.35  # 0.29 where values lie anywhere, 0.5 where all halfway
    assert error_in_steps(plain) < 0.02


@pytest.mark.parametrize("headroom", [0.9, 11, float("nan")])
def test_a_senseless_headroom_is_refused(headroom):
    with pytest.raises(InputError, match="headroom"):
        MeanSquaredError(headroom=headroom)


@pytest.mark.parametrize("symmetric", [True, False])
def test_entropy_diverges_least(symmetric):
    seen = ObservedTensor.of(heavy_tailed())

    def diverge(observer):
        ends = observer.choose_range(seen, SIGNED, symmetric=symmetric)
        return divergence(seen, qparams_for_range(*ends, SIGNED, symmetric=symmetric))

    assert diverge(Entropy()) <= diverge(MinMax())
    assert diverge(Entropy()) <= diverge(MeanSquaredError())


def observe_counts(filled, low=-2.0, high=2.0):
    """A tensor of which so many values fell into each of the parts that are named."""
    counts = np.zeros(BINS, np.int64)
    for place, count in filled.items():
        counts[place] = count
    return ObservedTensor(low=low, high=high, counts=counts)


def test_the_divergence_is_that_of_values_spread_evenly_over_the_parts_of_their_integer():
    grid = IntegerGrid(bits=2, is_narrow=True)
    qparams = qparams_for_range(-1.0, 1.0, grid, symmetric=True)
    # Parts 1024 to 3071 are within; those up to 1535 become -1, those up to 2559 become 0.
    filled = {100: 7, 600: 5, 900: 15, 1600: 3, 2000: 9, 2100: 3, 2700: 11, 4000: 6}
    found = divergence(observe_counts(filled), qparams)
    p = np.array([7 + 5 + 15, 3, 9, 3, 11, 6]) / 59
    q = np.array([0, 5, 5, 5, 11 / 2, 11 / 2]) / 26
    assert found == pytest.approx(np.sum(p * np.log(p / np.maximum(q, 1e-12))))


@pytest.mark.parametrize("ends", [(-1.0, 1.0), (-1.0, 3.0), (0.0, 2.0), (-2.0, 0.0)])
def test_the_part_that_holds_zero_counts_as_its_fuller_neighbour(ends):
    place = int(ObservedTensor.of([np.zeros(1)], ends).counts.argmax())
    neighbours = {place - 1: 40, place + 1: 30}
    filled = {700: 90, 3000: 80, **{at: neighbours[at] for at in neighbours if 0 <= at < BINS}}
    fuller = filled[place - 1] if place else filled[place + 1]
    qparams = qparams_for_range(*ends, SIGNED, symmetric=True)
    zeros = divergence(observe_counts({**filled, place: 5000}, *ends), qparams)
    assert zeros == divergence(observe_counts({**filled, place: fuller}, *ends), qparams)


def test_where_no_value_is_zero_no_part_holds_it():
    filled = {0: 5000, 1: 40, 700: 90}
    qparams = qparams_for_range(0.0, 6.0, SIGNED, symmetric=True)
    found = [
        divergence(observe_counts({**filled, 0: count}, 2.0, 6.0), qparams) for count in (5000, 40)
    ]
    assert found[0] != found[1]


def test_zeros_do_not_decide_the_entropy_range():
    values = np.abs(heavy_tailed()[0])
    many = np.concatenate([values.reshape(-1), np.zeros(50 * values.size, np.float32)])

    def reach(arrays):
        seen = ObservedTensor.of(arrays)
        return Entropy().choose_range(seen, UNSIGNED, symmetric=False)[1]

    assert reach([many]) == pytest.approx(reach([values]), rel=0.35)


def test_the_layer_decides_between_the_candidates():
    seen = ObservedTensor.of(heavy_tailed())
    observer = ByOutputError()
    ranges = [item.choose_range(seen, SIGNED, symmetric=True) for item in observer.candidates]
    for wanted in ranges:
        chosen = observer.choose_range(
            seen, SIGNED, symmetric=True, output_error=lambda ends, best=wanted: ends != best
        )
        assert chosen == wanted
    assert observer.choose_range(seen, SIGNED, symmetric=True) == ranges[0]


def test_no_candidates_are_refused():
    with pytest.raises(InputError, match="no candidates"):
        ByOutputError(candidates=())
