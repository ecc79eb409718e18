"""The written-out bank equals the textbook's matrix filter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perception.frame.kalman import ConstantVelocityBank


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), dt_s=st.floats(0.005, 0.5), sigma=st.floats(0.01, 20))
def test_equals_the_matrix_filter(seed, dt_s, sigma):
    rng = np.random.default_rng(seed)
    bank = ConstantVelocityBank(2)
    start = rng.normal(size=(3, 2))
    value_variance, rate_variance = rng.uniform(0.1, 5, (3, 2)), rng.uniform(0.1, 5, (3, 2))
    bank.add(start, value_variance, rate_variance)
    state = np.asarray([start[1, 0], 0.0])
    covariance = np.diag([value_variance[1, 0], rate_variance[1, 0]])
    step = np.asarray([[1, dt_s], [0, 1]])
    drive = np.asarray([dt_s**2 / 2, dt_s]) * sigma
    see = np.asarray([1.0, 0.0])
    for _ in range(6):
        bank.predict(dt_s, sigma)
        state, covariance = step @ state, step @ covariance @ step.T + np.outer(drive, drive)
        measured, variance = rng.normal(size=(1, 2)), rng.uniform(0.1, 2, (1, 2))
        bank.update(np.asarray([1]), measured - bank.value[[1]], variance)
        gain = covariance @ see / (see @ covariance @ see + variance[0, 0])
        state = state + gain * (measured[0, 0] - see @ state)
        covariance = covariance - np.outer(gain, see @ covariance)
    np.testing.assert_allclose([bank.value[1, 0], bank.rate[1, 0]], state, rtol=1e-6, atol=1e-9)
    got = [bank.value_variance[1, 0], bank.cross_covariance[1, 0], bank.rate_variance[1, 0]]
    np.testing.assert_allclose(
        got, [covariance[0, 0], covariance[0, 1], covariance[1, 1]], rtol=1e-6, atol=1e-9
    )


def test_rate_is_learnt_from_noisy_positions():
    rng = np.random.default_rng(0)
    bank = ConstantVelocityBank(1)
    bank.add(np.zeros((1, 1)), np.ones((1, 1)), np.full((1, 1), 100.0))
    row = np.asarray([0])
    for frame in range(1, 200):
        bank.predict(1 / 30, 0.1)
        seen = 7.0 * frame / 30 + rng.normal(0, 0.1)
        bank.update(row, seen - bank.value, np.full((1, 1), 0.01))
    assert bank.rate[0, 0] == pytest.approx(7.0, abs=0.2)


def test_shift_moves_values_and_leaves_rates():
    bank = ConstantVelocityBank(2)
    bank.add(np.zeros((2, 2)), np.ones((2, 2)), np.ones((2, 2)))
    bank.predict(0.1, 0.0, shift=np.asarray([1.0, -2.0]))
    np.testing.assert_allclose(bank.value, [[1, -2]] * 2)
    assert (bank.rate == 0).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), rate_variance=st.floats(0.01, 4))
def test_measured_rates_equal_the_matrix_filter(seed, rate_variance):
    rng = np.random.default_rng(seed)
    bank = ConstantVelocityBank(2)
    bank.add(rng.normal(size=(3, 2)), np.ones((3, 2)), np.full((3, 2), 2.0))
    bank.predict(0.3, 0.5)
    state = np.asarray([bank.value[1, 1], bank.rate[1, 1]])
    covariance = np.asarray(
        [
            [bank.value_variance[1, 1], bank.cross_covariance[1, 1]],
            [bank.cross_covariance[1, 1], bank.rate_variance[1, 1]],
        ]
    )
    gain = covariance[:, 1] / (covariance[1, 1] + rate_variance)
    untouched = bank.value[:, 0].copy()
    bank.update_rate(np.asarray([1]), 1, np.asarray([1.5]), np.asarray([rate_variance]))
    expected = state + gain * 1.5
    np.testing.assert_allclose([bank.value[1, 1], bank.rate[1, 1]], expected, rtol=1e-9)
    after = covariance - np.outer(gain, covariance[1])
    got = [bank.value_variance[1, 1], bank.cross_covariance[1, 1], bank.rate_variance[1, 1]]
    np.testing.assert_allclose(got, [after[0, 0], after[0, 1], after[1, 1]], rtol=1e-9)
    np.testing.assert_array_equal(bank.value[:, 0], untouched)
