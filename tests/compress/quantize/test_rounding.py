"""One contract over every rounding method, and the weights' scales."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compress.quantize.layer_weights import choose_row_scales, from_rows, to_rows
from compress.quantize.qparams import IntegerGrid
from compress.quantize.rounding import ROUNDINGS, RoundingProblem

GRID = IntegerGrid(is_narrow=True)


def problem(seed: int, grid: IntegerGrid = GRID) -> RoundingProblem:
    weights = np.random.default_rng(seed).standard_normal((6, 18))
    weights[2] = 0.0
    return RoundingProblem(weights=weights, scales=choose_row_scales(weights, grid), grid=grid)


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("grid", [GRID, IntegerGrid(bits=4, is_narrow=True)])
@given(seed=st.integers(0, 1000))
def test_the_result_is_on_the_grid_and_near_the_weights(name, grid, seed):
    task = problem(seed, grid)
    integers = ROUNDINGS[name]().round_weights(task)
    assert integers.dtype == np.int32
    assert integers.shape == task.weights.shape
    assert integers.min() >= grid.lowest
    assert integers.max() <= grid.highest
    assert not integers[2].any()
    reach = task.scales[:, None] * grid.highest
    error = np.abs(integers * task.scales[:, None] - np.clip(task.weights, -reach, reach))
    assert (error <= task.scales[:, None] * 1.01).all()


@given(st.integers(0, 1000))
def test_the_scales_are_no_worse_than_the_largest_weight_s(seed):
    weights = np.random.default_rng(seed).standard_t(3, (4, 30))

    def error(scales):
        integers = np.clip(np.rint(weights / scales[:, None]), GRID.lowest, GRID.highest)
        return np.square(integers * scales[:, None] - weights).sum(axis=1)

    widest = (np.abs(weights).max(axis=1) / GRID.highest).astype(np.float32)
    assert (error(choose_row_scales(weights, GRID)) <= error(widest) * (1 + 1e-6)).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_go_back_to_where_they_came_from(axis):
    weight = np.random.default_rng(0).standard_normal((4, 6, 3, 2))
    rows = to_rows(weight, axis)
    assert rows.shape == (weight.shape[axis], weight.size // weight.shape[axis])
    np.testing.assert_array_equal(from_rows(rows, weight.shape, axis), weight)
    np.testing.assert_array_equal(rows[1], np.take(weight, 1, axis).reshape(-1))
