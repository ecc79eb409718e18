"""Integers of weights whose sums of two fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.paired_products import PAIR_SUM, LayerProducts, sum_pairs
from compress.quantize.layer_weights import choose_row_scales, widest_scales
from compress.quantize.paired_grid import PairedGrid, grid_of_layer
from compress.quantize.qparams import WEIGHT_GRID, WEIGHT_GRIDS, round_to_grid
from compress.quantize.rounding import GPTQ, AdaRound, Nearest, RoundingProblem
from compress.quantize.rounding.moments import MomentSums

PAIRS = WEIGHT_GRIDS["int8-pairs"]


def make_grid(inputs: int, kernel: int = 1) -> PairedGrid:
    grid = grid_of_layer(PAIRS, LayerProducts((8, inputs, kernel), 0))
    assert isinstance(grid, PairedGrid)
    return grid


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), inputs=st.integers(2, 9), spread=st.floats(1, 400))
def test_rounded_pairs_fit_and_stay_within_limits_made_of_them(seed, inputs, spread) -> None:
    grid = make_grid(inputs, kernel=2)
    exact = np.random.default_rng(seed).normal(0, spread, (8, inputs * 2))
    integers = round_to_grid(exact, grid)
    weight = integers.astype(np.int8).reshape(8, inputs, 2)
    assert LayerProducts(weight.shape, 0).count_overflowing(weight) == 0
    low, high = grid.limits(integers)
    assert ((low <= integers) & (integers <= high)).all()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), inputs=st.sampled_from([1, 3, 5]), spread=st.floats(1, 400))
def test_odd_numbers_of_channels_keep_the_sums_of_each_order(seed, inputs, spread) -> None:
    orders = [LayerProducts((8, inputs, 3), 0, is_position_first=first) for first in (False, True)]
    grid = grid_of_layer(PAIRS, *orders)
    assert isinstance(grid, PairedGrid)
    rows = np.random.default_rng(seed).normal(0, spread, (8, inputs * 3))
    integers = round_to_grid(rows, grid)
    for order in orders:
        assert order.count_overflowing(integers.astype(np.int8).reshape(order.shape)) == 0
    low, high = grid.limits(integers)
    assert ((low <= integers) & (integers <= high)).all()
    widest = rows / widest_scales(rows, grid)[:, None]
    np.testing.assert_allclose(np.clip(widest, *grid.limits(widest)), widest, atol=0.5)


@settings(max_examples=60, deadline=None)
@given(one=st.floats(-127, 127), other=st.floats(-127, 127))
def test_what_is_too_much_is_taken_from_both_alike(one, other) -> None:
    exact = np.array([[one, other]])
    got = round_to_grid(exact, make_grid(2))
    every = np.arange(-127, 128)
    first, second = np.meshgrid(every, every, indexing="ij")
    fits = np.abs(first + second) <= PAIR_SUM
    fits |= (first > 0) != (second > 0)
    distance = np.square(first - one) + np.square(second - other)
    least = distance[fits].min()
    assert np.square(got - exact).sum() == pytest.approx(least, abs=1.0)


def test_limits_are_those_of_values_in_steps_of_their_scales() -> None:
    rng = np.random.default_rng(0)
    values, steps = rng.normal(0, 3, (6, 16)), rng.uniform(0.01, 0.05, (6, 1))
    grid = make_grid(16)
    for got, wanted in zip(grid.limits(values, steps), grid.limits(values / steps), strict=True):
        np.testing.assert_array_equal(got, wanted)
    low, high = grid.limits(values, steps)
    assert (low > -127).any()
    assert (high < 127).any()


def test_a_row_reaches_its_largest_pair() -> None:
    rows = np.array([[1.0, 0.5, 0.1, 0.1], [1.0, -1.0, 0.1, 0.1]])
    scales = widest_scales(rows, make_grid(4))
    np.testing.assert_allclose(scales, [1.5 / PAIR_SUM, 1 / 127])


def test_scales_lose_less_than_those_of_7_bits() -> None:
    rows = np.random.default_rng(0).normal(0, 1, (32, 64))

    def lost(grid) -> float:
        steps = choose_row_scales(rows, grid)[:, None]
        return float(np.square(round_to_grid(rows / steps, grid) * steps - rows).sum())

    paired, seven, eight = (
        lost(grid) for grid in (make_grid(64), WEIGHT_GRIDS["int7"], WEIGHT_GRID)
    )
    assert eight < paired < 0.6 * seven


@pytest.mark.parametrize("method", [Nearest(), GPTQ(), AdaRound(iterations=40, starts=1)])
def test_every_rounding_keeps_to_the_sums(method) -> None:
    rng = np.random.default_rng(1)
    rows, inputs = rng.normal(0, 1, (8, 12)), rng.normal(0, 1, (1, 12, 400)).astype(np.float32)
    grid = make_grid(12)
    sums = MomentSums(is_centered=True)
    sums.add(inputs, inputs, rows[None].astype(np.float32) @ inputs)
    problem = RoundingProblem(
        weights=rows,
        scales=np.full((8, 1), np.abs(rows).max() / 127),
        blocks=np.zeros(12, np.int64),
        grid=grid,
        fit=sums.finish(),
    )
    rounded = method.round_weights(problem)
    assert np.abs(rounded.integers).max() > 64
    assert max(sum_pairs(s * rounded.integers, grid.partners).max() for s in (1, -1)) <= PAIR_SUM


def test_layers_without_pairs_keep_8_bits_and_unknown_ones_have_7() -> None:
    assert grid_of_layer(PAIRS, LayerProducts((16, 1, 3, 3), 0, 16)) == WEIGHT_GRID
    assert grid_of_layer(PAIRS, None) == WEIGHT_GRIDS["int7"]
    assert grid_of_layer(WEIGHT_GRID, LayerProducts((16, 4, 3, 3), 0)) == WEIGHT_GRID
