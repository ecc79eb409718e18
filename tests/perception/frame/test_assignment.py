"""The assignment is optimal: scipy's solver finds nothing cheaper."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from perception.frame.assignment import assign_pairs


def value_of(cost, pairs, limit):
    return float((cost[pairs[:, 0], pairs[:, 1]] - limit).sum())


@settings(max_examples=200, deadline=None)
@given(
    rows=st.integers(0, 14), columns=st.integers(0, 14), forbidden=st.floats(0, 0.95),
    is_coarse=st.booleans(), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_as_good_as_scipy(rows, columns, forbidden, is_coarse, seed):
    rng = np.random.default_rng(seed)
    cost = rng.uniform(0, 1.3, (rows, columns))
    if is_coarse:
        cost = np.round(cost * 4) / 4
    cost[rng.random((rows, columns)) < forbidden] = np.inf
    pairs = assign_pairs(cost, 1.0)
    assert len(set(pairs[:, 0])) == len(set(pairs[:, 1])) == len(pairs)
    assert (cost[pairs[:, 0], pairs[:, 1]] < 1.0).all()
    capped = np.minimum(cost, 1.0)
    theirs = np.stack(linear_sum_assignment(capped), axis=1)
    assert value_of(cost, pairs, 1.0) == pytest.approx(value_of(capped, theirs, 1.0), abs=1e-9)


def test_greedy_would_be_worse_here():
    cost = np.asarray([[0.1, 0.2], [0.2, 0.9]])
    assert assign_pairs(cost, 1.0).tolist() == [[0, 1], [1, 0]]


def test_costly_pairs_stay_apart():
    assert assign_pairs(np.asarray([[1.0, 2.0], [np.inf, 1.5]]), 1.0).shape == (0, 2)


def test_order_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    cost = rng.random((7, 9))
    shuffle = rng.permutation(7)
    pairs = {tuple(p) for p in assign_pairs(cost, 0.8).tolist()}
    shuffled = {(int(shuffle[r]), c) for r, c in assign_pairs(cost[shuffle], 0.8).tolist()}
    assert pairs == shuffled
