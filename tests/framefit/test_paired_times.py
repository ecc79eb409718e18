"""Networks that take turns are compared within each turn."""

import math

import numpy as np
import pytest

from framefit.paired_times import PairedTimes


def draw(ratios, turns, seed=0, drift=0.0, noise=0.0, inferences=2):
    """Times of networks on a machine whose speed differs by turn, [turns, networks, inferences]."""
    rng = np.random.default_rng(seed)
    speed = np.exp(drift * rng.standard_normal((turns, 1, 1)))
    own = np.exp(noise * rng.standard_normal((turns, len(ratios), inferences)))
    return 1e6 * np.array(ratios)[:, None] * speed * own


@pytest.mark.parametrize("ratios", [[1.0], [1.0, 0.5], [1.0, 0.9, 1.2, 1.0, 3.0]])
def test_a_speed_that_all_share_leaves_the_ratios(ratios):
    times = PairedTimes(draw(ratios, 6, drift=0.3))
    assert times.ratios == pytest.approx(ratios)
    assert max(times.widths) == pytest.approx(0)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_the_ratios_interval_has_its_95_percent(count):
    """Of two networks the interval is that of their ratio; of more it is to the others' mean."""
    ratios = np.linspace(1, 2, count)
    center = np.log(ratios[-1]) - np.log(ratios[:-1]).mean()
    found = 0
    for seed in range(400):
        times = PairedTimes(draw(ratios, 30, seed, drift=0.2, noise=0.03))
        low, _, high = times.levels[-1]
        assert times.widths[-1] == high - low
        found += low <= center <= high
    assert 0.93 < found / 400 < 0.995


def test_pairs_are_nearer_to_the_truth_than_quartiles_where_the_speed_drifts():
    truth = 0.9
    errors = []
    for seed in range(200):
        taken = draw([1.0, truth], 12, seed, drift=0.1, noise=0.02)
        first, other = np.quantile(taken, 0.25, axis=(0, 2))
        paired = PairedTimes(taken).ratios[1]
        errors.append([math.log(paired / truth) ** 2, math.log(other / first / truth) ** 2])
    ours, quartiles = np.sqrt(np.mean(errors, axis=0))
    assert ours < 0.01
    assert ours < 0.7 * quartiles


def test_a_burst_in_one_turn_does_not_count():
    taken = draw([1.0, 0.8, 1.1], 9)
    taken[4, 1] *= 5
    taken[2, 0, 1] *= 3
    assert PairedTimes(taken).ratios == pytest.approx([1, 0.8, 1.1])


def test_the_first_networks_latency_is_its_lower_quartile():
    taken = np.arange(1, 42).reshape(41, 1, 1)
    low, quartile, high = PairedTimes(taken).quartile_interval
    assert quartile == 11
    assert (low, high) == (5, 17)
    assert PairedTimes(taken).fastest == 1
