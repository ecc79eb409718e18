"""Moments of a layer's inputs, against the columns that they are of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compress.quantize.rounding.moments import MomentSums

GROUPS, OUTPUTS, INPUTS = 3, 2, 5


def draw(seed, columns):
    """Weights, a float network's columns and those of a quantized prefix, far from 0."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((GROUPS, OUTPUTS, INPUTS))
    plain = rng.standard_normal((GROUPS, INPUTS, columns)) + 4
    return weights, plain, plain + 0.2 * rng.standard_normal(plain.shape) - 0.3


def measure(weights, *pictures, is_centered=False):
    sums = MomentSums(is_centered=is_centered)
    for plain, quantized in pictures:
        sums.add(plain, quantized, weights @ plain)
    return sums.finish()


@pytest.mark.parametrize("is_centered", [False, True])
@given(seed=st.integers(0, 1000), first=st.integers(1, 30))
def test_row_errors_are_those_of_the_outputs(is_centered, seed, first):
    weights, plain, quantized = draw(seed, 40)
    parts = [(plain[..., part], quantized[..., part]) for part in (np.s_[:first], np.s_[first:])]
    rounded = np.round(weights, 1)
    error = weights @ plain - rounded @ quantized
    if is_centered:
        error -= error.mean(axis=2, keepdims=True)
    moments = measure(weights, *parts, is_centered=is_centered)
    assert moments.columns == 40
    found = moments.row_errors(weights.reshape(-1, INPUTS), rounded.reshape(-1, INPUTS))
    np.testing.assert_allclose(found, np.square(error).mean(axis=2).reshape(-1), atol=1e-9)


def test_nothing_seen_has_no_moments():
    assert MomentSums(is_centered=True).finish() is None


@given(seed=st.integers(0, 1000), first=st.integers(1, 30))
def test_joined_moments_are_those_of_all_columns(seed, first):
    weights, plain, quantized = draw(seed, 40)
    mine, others = (
        measure(weights, (plain[..., part], quantized[..., part]))
        for part in (np.s_[:first], np.s_[first:])
    )
    joined, whole = mine.joined(others), measure(weights, (plain, quantized))
    for name in ("hessian", "cross", "power", "columns"):
        np.testing.assert_allclose(getattr(joined, name), getattr(whole, name))
    assert mine.joined(None) is mine


def test_groups_that_share_their_rows_are_one_whose_inputs_do_not_mix():
    weights, plain, quantized = draw(1, 40)
    moments = measure(weights, (plain, quantized))
    rows = weights.transpose(1, 0, 2).reshape(OUTPUTS, -1)
    rounded = np.round(weights, 1)
    apart = moments.row_errors(weights.reshape(-1, INPUTS), rounded.reshape(-1, INPUTS))
    together = moments.block_diagonal().row_errors(
        rows, rounded.transpose(1, 0, 2).reshape(OUTPUTS, -1)
    )
    np.testing.assert_allclose(together, apart.reshape(GROUPS, OUTPUTS).sum(axis=0))
