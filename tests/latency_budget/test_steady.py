import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from latency_budget.run import Run
from latency_budget.steady import (
    _block_medians,
    _drift_per_minute,
    _errors_to,
    _noise,
    _noise_within,
    find_steady,
    segment_levels,
)
from latency_budget.steady_gate import judge_steadiness
from latency_budget.verdict import Verdict

MS = 1_000_000
SHARE = np.arange(1000) / 1000


def noisy(shape, seed=1):
    noise = np.random.default_rng(seed).lognormal(0, 0.02, len(shape))
    return (20 * MS * noise * shape).astype(np.int64)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40))
def test_errors_are_those_to_the_median_of_each_tail(values):
    values = np.asarray(values, float)
    expected = [np.abs(values[i:] - np.median(values[i:])).sum() for i in range(len(values))]
    assert _errors_to(values) == pytest.approx(expected)


def test_a_step_is_cut_where_it_is():
    assert segment_levels(np.r_[np.full(12, 20.0), np.full(20, 25.0)] + 0.01) == [0, 12]


@pytest.mark.parametrize(
    ("shape", "outcome"),
    [
        (np.ones(1000), "steady"),
        (np.where(SHARE < 0.1, 1.3, 1.0), "steady"),
        (np.where(SHARE < 0.5, 1.0, 1.1), "unsteady"),
        (1 + 0.15 * SHARE, "unsteady"),
        (1 + 0.3 * (SHARE * 4 % 1), "unsteady"),
        (1 + 0.2 * (SHARE * 10 / 3 % 1), "unsteady"),
        (1 + 0.1 * np.sin(SHARE * 20), "unsteady"),
        (1 + 0.01 * np.sin(SHARE * 20), "steady"),
        (np.ones(200), "unknown"),
        (np.zeros(1000), "unknown"),
    ],
)
def test_runs_that_settle_and_runs_that_do_not(shape, outcome):
    """Row 108."""
    assert find_steady(noisy(shape), 1 / 30).outcome == outcome


def test_a_longer_warm_up_is_told_and_nothing_is_cut_off():
    found = find_steady(noisy(np.where(SHARE < 0.1, 1.3, 1.0)), 1 / 30)
    assert 60 <= found.first <= 120


def test_outliers_alone_are_no_step():
    shape = np.where(np.arange(1000) % 11 == 0, 3.0, 1.0)
    assert find_steady(noisy(shape), 1 / 30).outcome == "steady"


@pytest.mark.parametrize("slower", [1.15, 1.5])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_frames_of_two_kinds_by_chance_have_settled(slower, share):
    """A block whose middle frame is of the rarer kind is chance, and no step."""
    found = []
    for seed in range(10):
        is_slow = np.random.default_rng(seed).random(1980) < share
        found.append(find_steady(noisy(np.where(is_slow, slower, 1.0), seed), 1 / 30).outcome)
    assert found.count("steady") >= 9


def test_frames_of_two_kinds_whose_shares_change_have_not_settled():
    rng = np.random.default_rng(0)
    is_slow = rng.random(1000) < np.where(SHARE < 0.5, 0.2, 0.8)
    assert find_steady(noisy(np.where(is_slow, 1.3, 1.0)), 1 / 30).outcome == "unsteady"


def test_each_process_is_judged_by_itself():
    first, second = (Run.from_latencies(noisy(np.full(500, level))) for level in (1.0, 1.2))
    joined = Run.join([first, second])
    assert judge_steadiness(joined, "enforce").verdict is Verdict.PASS
    one = Run.from_latencies(np.r_[first.latency_ns, second.latency_ns])
    assert judge_steadiness(one, "enforce").verdict is Verdict.INVALID
    assert judge_steadiness(one, "report").verdict is Verdict.PASS


@pytest.mark.parametrize("step_ns", [1, 100_000, 1_000_000])
@pytest.mark.parametrize(("later", "outcome"), [(1.0, "steady"), (1.05, "unsteady")])
def test_times_in_whole_milliseconds_settle_as_others_do(step_ns, later, outcome):
    """Medians between two ticks fell on one in a block and on the other in the next."""
    rng = np.random.default_rng(0)
    for frames in (600, 6000):
        half = np.where(np.arange(frames) < frames / 2, 1.0, later)
        times = (25e6 + 1.1e6 * rng.exponential(size=frames)) * half
        service_ns = times.astype(np.int64) // step_ns * step_ns
        assert find_steady(service_ns, 1 / 30).outcome == outcome


def test_a_step_within_the_tolerance_is_part_of_the_steady_run():
    found = find_steady((20 * MS * np.where(SHARE < 0.5, 1.005, 1.0)).astype(np.int64), 1 / 30)
    assert (found.outcome, found.first) == ("steady", 0)


def test_a_return_to_the_last_level_does_not_make_the_spell_between_steady():
    shape = np.where((SHARE > 0.4) & (SHARE < 0.6), 1.1, 1.0)
    found = find_steady((20 * MS * shape).astype(np.int64), 1 / 30)
    assert found.outcome == "unsteady"
    assert found.first == 600


@pytest.mark.parametrize("spread", [0.1 * MS, 3 * MS])
def test_the_noise_of_a_block_is_what_its_median_scatters_by(spread):
    frames = np.random.default_rng(3).normal(20 * MS, spread, (4000, 30)).astype(np.int64)
    blocks = np.median(frames, axis=1)
    assert _noise(blocks) == pytest.approx(blocks.std(), rel=0.05)
    assert _noise_within(frames) == pytest.approx(blocks.std(), rel=0.1)


def test_medians_of_whole_milliseconds_are_those_of_the_times_themselves():
    times = 25 * MS + np.random.default_rng(4).uniform(0, 3 * MS, (200, 300)).astype(np.int64)
    coarse = np.round(times / MS).astype(np.int64) * MS
    error = _block_medians(coarse, coarse.ravel()) - np.median(times, axis=1)
    assert np.abs(error).max() < 0.15 * MS
    assert abs(error.mean()) < 0.01 * MS


@given(st.integers(0, 10_000), st.floats(-0.03, 0.03))
def test_a_drift_is_told_where_its_slope_is_four_standard_errors(seed, rate):
    minutes = np.arange(20) / 2
    blocks = 20 * (1 + rate * minutes) + np.random.default_rng(seed).normal(0, 0.5, 20)
    fit = stats.linregress(minutes, blocks)
    share = fit.slope / np.median(blocks)
    is_sure = abs(fit.slope) > 4 * fit.stderr and abs(share) > 0.005
    found = _drift_per_minute(blocks, 30, 0.0)
    assert found == (pytest.approx(share) if is_sure else None)
    assert _drift_per_minute(blocks, 30, 9.5 * abs(fit.slope) + 1e-9) is None
