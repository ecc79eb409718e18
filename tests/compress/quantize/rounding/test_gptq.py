"""GPTQ against the explicit solution, and what surrounds it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from compress.quantize.qparams import WEIGHT_GRIDS
from compress.quantize.rounding import GPTQ
from compress.quantize.rounding.descend import refit_scales, sweep_columns
from compress.quantize.rounding.gptq import factor_hessian, round_with_losses
from compress.quantize.rounding.target import damp

INT4 = WEIGHT_GRIDS["int4"]


def make_problem(seed, outputs=4, inputs=9, columns=60, groups=1):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((groups, outputs, inputs))
    mixing = rng.standard_normal((groups, inputs, inputs))
    data = mixing @ rng.standard_normal((groups, inputs, columns))
    hessian = damp(data @ data.transpose(0, 2, 1) / columns, 0.01)
    steps = np.broadcast_to(np.abs(rows).max(2, keepdims=True) / 7, rows.shape).copy()
    return rows, steps, hessian


def round_with_explicit_inverses(rows, steps, hessian, order, grid):
    """Optimal Brain Surgeon, one weight at a time, with the inverse of what is left of H each time.

    Frantar et al. (2022), equation 3: delta = -(w_q - round(w_q)) / [H_F^-1]_qq * [H_F^-1]_:q.
    """
    rows = rows.copy()
    integers = np.zeros_like(rows)
    for done, column in enumerate(order):
        left = list(order[done:])
        inverse = np.linalg.inv(hessian[np.ix_(left, left)])
        exact = rows[:, column] / steps[:, column]
        integers[:, column] = np.clip(np.rint(exact), grid.lowest, grid.highest)
        error = rows[:, column] - integers[:, column] * steps[:, column]
        rows[:, left] -= np.outer(error / inverse[0, 0], inverse[0])
    return integers


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("block", [1, 4, 128])
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_it_is_the_optimal_brain_surgeon_column_by_column(ordered, block, seed):
    rows, steps, hessian = make_problem(seed)
    got, _ = round_with_losses(rows, steps, hessian, INT4, ordered=ordered, block=block)
    order = np.arange(rows.shape[2])
    if ordered:
        order = np.argsort(-np.diag(hessian[0]), kind="stable")
    wanted = round_with_explicit_inverses(rows[0], steps[0], hessian[0], order, INT4)
    np.testing.assert_array_equal(got[0], wanted)


def test_groups_are_rounded_as_if_alone():
    rows, steps, hessian = make_problem(0, groups=5)
    settings = {"ordered": True, "block": 4}
    together, _ = round_with_losses(rows, steps, hessian, INT4, **settings)
    for group in range(5):
        part = slice(group, group + 1)
        alone, _ = round_with_losses(rows[part], steps[part], hessian[part], INT4, **settings)
        np.testing.assert_array_equal(together[part], alone)


def test_what_rounding_loses_is_known_without_another_product():
    rows, steps, hessian = make_problem(1, groups=3)
    found, losses = round_with_losses(rows, steps, hessian, INT4, ordered=True, block=4)
    error = rows - found * steps
    np.testing.assert_allclose(losses, (error @ hessian * error).sum(axis=2), rtol=1e-9)


@given(seed=st.integers(0, 1000))
def test_the_factor_is_that_of_the_hessian_in_order(seed):
    _, _, hessian = make_problem(seed)
    order = np.random.default_rng(seed).permutation(9)[None]
    upper = factor_hessian(hessian, order)[0]
    assert not np.tril(upper, -1).any()
    ordered = hessian[0][np.ix_(order[0], order[0])]
    np.testing.assert_allclose(upper @ upper.T, ordered, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 1000))
def test_sweeps_and_fitted_scales_never_raise_the_error(seed):
    rows, steps, hessian = make_problem(seed, groups=2)

    def loss(integers, scales):
        error = rows - integers * scales
        return (error @ hessian * error).sum(axis=2)

    start = np.clip(np.rint(rows / steps), INT4.lowest, INT4.highest)
    swept = sweep_columns(rows, start, steps, hessian, INT4)
    assert (loss(swept, steps) <= loss(start, steps) + 1e-9).all()
    assert swept.min() >= INT4.lowest
    assert swept.max() <= INT4.highest
    fitted = refit_scales(rows, swept, steps[:, :, 0], hessian)[:, :, None]
    assert (loss(swept, fitted) <= loss(swept, steps) * (1 + 1e-6) + 1e-9).all()


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_a_sweep_gives_each_weight_in_turn_the_best_integer_given_the_rest(seed):
    rows, steps, hessian = make_problem(seed, groups=2)
    wanted = np.clip(np.rint(rows / steps), INT4.lowest, INT4.highest)
    got = sweep_columns(rows, wanted, steps, hessian, INT4)
    for column in range(rows.shape[2]):
        trials = np.tile(wanted, (16, 1, 1, 1))
        trials[:, :, :, column] = np.arange(INT4.lowest, INT4.highest + 1)[:, None, None]
        error = rows - trials * steps
        best = (error @ hessian * error).sum(axis=3).argmin(axis=0)
        wanted[:, :, column] = best + INT4.lowest
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_a_refitted_scale_is_that_of_least_squares_and_stays_where_none_is_usable(size):
    rows, steps, hessian = make_problem(5, groups=2)
    integers = np.clip(np.rint(rows / steps), INT4.lowest, INT4.highest)
    integers[0, 0], integers[1, 1] = 0, -integers[1, 1]
    old, hessian = steps[:, :, 0], size * hessian
    fitted = refit_scales(rows, integers, old, hessian)
    for group, row in np.ndindex(old.shape):
        # |w - s q| with the norm of H: an ordinary least-squares problem in a factor of H.
        turned = np.linalg.cholesky(hessian[group]).T
        column = (turned @ integers[group, row])[:, None]
        wanted = np.linalg.lstsq(column, turned @ rows[group, row], rcond=None)[0][0]
        is_usable = wanted > 0
        assert is_usable == ((group, row) not in [(0, 0), (1, 1)])
        wanted = wanted if is_usable else old[group, row]
        assert fitted[group, row] == pytest.approx(wanted, rel=1e-6)


def test_a_sweep_over_many_blocks_is_the_same_as_one_column_at_a_time(monkeypatch):
    rows, steps, hessian = make_problem(3, inputs=20, columns=100)
    start = np.clip(np.rint(rows / steps), INT4.lowest, INT4.highest)
    whole = sweep_columns(rows, start, steps, hessian, INT4)
    monkeypatch.setattr("compress.quantize.rounding.descend._BLOCK", 3)
    np.testing.assert_array_equal(whole, sweep_columns(rows, start, steps, hessian, INT4))


def test_a_hessian_that_is_not_positive_gets_a_larger_diagonal():
    hessian = np.asarray([[[1.0, 2.0], [2.0, 1.0]]])
    upper = factor_hessian(hessian, np.asarray([[0, 1]]))
    assert np.isfinite(upper).all()
    assert (np.diagonal(upper, axis1=1, axis2=2) > 0).all()


@pytest.mark.parametrize(
    "values", [{"damping": 0.0}, {"block": 0}, {"sweeps": -1}, {"clip_factors": (1.2,)}]
)
def test_settings_that_make_no_sense_are_refused(values):
    with pytest.raises(InputError):
        GPTQ(**values)
