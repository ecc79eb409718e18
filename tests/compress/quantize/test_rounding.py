"""One contract over every rounding method, and the weights' scales."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.quantize.layer_weights import (
    CLIP_FACTORS,
    choose_block_scales,
    choose_row_scales,
    from_rows,
    to_rows,
)
from compress.quantize.qparams import WEIGHT_GRIDS, IntegerGrid
from compress.quantize.rounding import (
    GPTQ,
    ROUNDINGS,
    AdaRound,
    Auto,
    Nearest,
    RoundingProblem,
)
from compress.quantize.rounding.moments import MomentSums
from compress.quantize.rounding.target import choose_ridge

GRID, INT4 = WEIGHT_GRIDS["int8"], WEIGHT_GRIDS["int4"]


def problem(
    seed: int, grid: IntegerGrid = GRID, blocks: int = 1, gain: float = 1.0
) -> RoundingProblem:
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((6, 18))
    weights[2] = 0.0
    mixing = rng.standard_normal((18, 18))
    fit, held_out = (
        moments_of(weights, mixing @ rng.standard_normal((18, columns)), rng, gain)
        for columns in (300, 100)
    )
    index = np.arange(18) * blocks // 18
    return RoundingProblem(
        weights=weights,
        scales=choose_block_scales(weights, index, grid),
        blocks=index,
        grid=grid,
        fit=fit,
        held_out=held_out,
    )


def moments_of(weights, inputs, rng, gain):
    """Inputs [in, n]; those of the quantized prefix are a little off, and times a gain."""
    plain = inputs[None].astype(np.float32)
    noisy = (gain * plain + 0.05 * rng.standard_normal(plain.shape)).astype(np.float32)
    rows = weights[None].astype(np.float32)
    sums = MomentSums(is_centered=True)
    sums.add(plain, noisy, rows @ plain)
    return sums.finish()


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("grid", [GRID, INT4])
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), blocks=st.sampled_from([1, 3]))
def test_the_result_is_on_the_grid(name, grid, seed, blocks):
    task = problem(seed, grid, blocks)
    rounded = ROUNDINGS[name]().round_weights(task)
    assert rounded.integers.dtype == np.int32
    assert rounded.integers.shape == task.weights.shape
    assert rounded.scales.shape == task.scales.shape
    assert (rounded.scales > 0).all()
    assert (rounded.scales == rounded.scales.astype(np.float32)).all()
    assert rounded.integers.min() >= grid.lowest
    assert rounded.integers.max() <= grid.highest
    assert not rounded.integers[2].any()


@pytest.mark.parametrize("name", ROUNDINGS)
def test_a_second_run_gives_the_same(name):
    first, again = (ROUNDINGS[name]().round_weights(problem(3, INT4)) for _ in range(2))
    np.testing.assert_array_equal(first.integers, again.integers)
    np.testing.assert_array_equal(first.scales, again.scales)


@given(st.integers(0, 1000))
def test_nearest_is_within_half_a_step(seed):
    task = problem(seed, INT4)
    integers = Nearest().round_weights(task).integers
    reach = np.clip(task.weights / task.steps, INT4.lowest, INT4.highest)
    assert (np.abs(integers - reach) <= 0.5 + 1e-9).all()


@pytest.mark.parametrize("blocks", [1, 3])
@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_auto_is_never_worse_than_nearest_on_held_out_pictures(blocks, seed):
    task = problem(seed, INT4, blocks)
    nearest = error(task, task.held_out, Nearest())
    assert error(task, task.held_out, Auto()) <= nearest


def test_auto_takes_the_method_that_is_best_on_held_out_pictures():
    found = {}
    for seed in range(12):
        task = problem(seed, INT4, gain=0.9 if seed % 2 else 1.0)
        # The candidates are fitted to the other pictures alone, GPTQ without its search of scales.
        fitted = [
            method.round_to_fit(task, task.fit, ridge)
            for method in (GPTQ(clip_factors=()), AdaRound())
            for ridge in {None, choose_ridge(task)}
        ]
        best = min(fitted, key=lambda rounded, task=task: error_of(task, task.held_out, rounded))
        found[seed] = best.how
        assert Auto().round_weights(task).how == best.how
    assert len({how.split(",")[0] for how in found.values()}) == 2
    assert any("inputs corrected" in how for how in found.values())
    rounded = Auto(most_adaround_inputs=17).round_weights(problem(0, INT4))
    assert rounded.how.startswith("gptq")


@pytest.mark.parametrize("name", ROUNDINGS)
def test_without_pictures_weights_are_rounded_to_the_nearest(name):
    task = replace(problem(0), fit=None, held_out=None)
    assert ROUNDINGS[name]().round_weights(task).how == "nearest"


@pytest.mark.parametrize("name", ["gptq", "adaround", "auto"])
@pytest.mark.parametrize("blocks", [1, 3])
def test_the_output_is_closer_than_with_nearest(name, blocks):
    tasks = [problem(seed, INT4, blocks) for seed in range(8)]
    better, nearest = (
        sum(error(task, task.fit.joined(task.held_out), method) for task in tasks)
        for method in (ROUNDINGS[name](), Nearest())
    )
    assert better < 0.8 * nearest


def error(task, moments, method):
    return error_of(task, moments, method.round_weights(task))


def error_of(task, moments, rounded):
    values = rounded.integers * rounded.scales[:, task.blocks]
    return moments.row_errors(task.weights, values).sum()


@given(st.integers(0, 1000))
def test_the_scales_are_no_worse_than_the_largest_weight_s(seed):
    weights = np.random.default_rng(seed).standard_t(3, (4, 30))

    def error(scales):
        integers = np.clip(np.rint(weights / scales[:, None]), GRID.lowest, GRID.highest)
        return np.square(integers * scales[:, None] - weights).sum(axis=1)

    widest = (np.abs(weights).max(axis=1) / GRID.highest).astype(np.float32)
    assert (error(choose_row_scales(weights, GRID)) <= error(widest) * (1 + 1e-6)).all()


@pytest.mark.parametrize("grid", WEIGHT_GRIDS.values(), ids=str)
@settings(max_examples=30)
@given(seed=st.integers(0, 1000), degrees=st.sampled_from([1, 3, 100]), width=st.integers(1, 40))
def test_a_row_s_scale_is_the_best_of_all_factors(grid, seed, degrees, width):
    weights = np.random.default_rng(seed).standard_t(degrees, (6, width))
    widest = np.abs(weights).max(axis=1) / grid.highest
    scales = (CLIP_FACTORS[::-1, None] * widest).astype(np.float32).astype(np.float64)
    integers = np.clip(np.rint(weights / scales[:, :, None]), grid.lowest, grid.highest)
    errors = np.square(integers * scales[:, :, None] - weights).sum(axis=2)
    chosen = choose_row_scales(weights, grid)
    places = np.argmax(scales == chosen, axis=0)
    assert (scales == chosen).any(axis=0).all()
    found = np.take_along_axis(errors, places[None], 0)[0]
    np.testing.assert_allclose(found, errors.min(axis=0), rtol=1e-9, atol=1e-15)


def test_a_dead_channel_gets_a_scale_that_its_bias_can_be_stored_in():
    rows = np.outer([0.0, 1.0, 2.0, 8.0], np.linspace(-1, 1, 9))
    scales = choose_row_scales(rows, GRID)
    assert 0.5 <= scales[0] / scales[2] <= 2
    alone = choose_row_scales(np.zeros((2, 9)), GRID)
    assert (alone > 0).all()
    assert (alone < 1e-3).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_go_back_to_where_they_came_from(axis):
    weight = np.random.default_rng(0).standard_normal((4, 6, 3, 2))
    rows = to_rows(weight, axis)
    assert rows.shape == (weight.shape[axis], weight.size // weight.shape[axis])
    np.testing.assert_array_equal(from_rows(rows, weight.shape, axis), weight)
    np.testing.assert_array_equal(rows[1], np.take(weight, 1, axis).reshape(-1))
