"""The weights that rounding aims at, against least squares on the inputs themselves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.quantize.qparams import WEIGHT_GRIDS
from compress.quantize.rounding import GPTQ, RoundingProblem
from compress.quantize.rounding.moments import MomentSums
from compress.quantize.rounding.target import (
    LEAST_GAIN,
    RIDGES,
    choose_ridge,
    correct_weights,
    damp,
)

INPUTS, OUTPUTS, GROUPS = 7, 4, 2


def draw(seed, columns, gain=0.8):
    """A float network's inputs, and those of a quantized prefix: times a gain, and noisy."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((GROUPS, INPUTS, INPUTS))
    plain = mixing @ rng.standard_normal((GROUPS, INPUTS, columns))
    return plain, gain * plain + 0.3 * rng.standard_normal(plain.shape)


def measure(weights, plain, quantized):
    sums = MomentSums(is_centered=False)
    rows = weights.reshape(GROUPS, OUTPUTS, INPUTS)
    sums.add(plain, quantized, rows @ plain)
    return sums.finish()


def make_problem(seed, fit=60, held_out=30, gain=0.8):
    weights = np.random.default_rng(seed).standard_normal((GROUPS * OUTPUTS, INPUTS))
    inputs = draw(seed, fit + held_out, gain)
    mine, others = (
        [item[:, :, part] for item in inputs] for part in (slice(fit), slice(fit, None))
    )
    return RoundingProblem(
        weights=weights,
        scales=np.full((len(weights), 1), 0.05),
        blocks=np.zeros(INPUTS, np.int64),
        grid=WEIGHT_GRIDS["int8"],
        fit=measure(weights, *mine),
        held_out=measure(weights, *others),
    )


def test_damping_adds_a_share_of_each_group_s_mean_diagonal():
    hessian = np.stack([np.diag([1.0, 2.0, 6.0]), np.full((3, 3), 8.0), np.zeros((3, 3))])
    added = damp(hessian, 0.5) - hessian
    for group, wanted in enumerate((1.5, 4.0, 1.0)):
        np.testing.assert_allclose(added[group], wanted * np.eye(3))


@pytest.mark.parametrize("ridge", RIDGES)
@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_corrected_weights_are_those_of_least_squares_held_near_the_old_ones(ridge, seed):
    weights = np.random.default_rng(seed).standard_normal((GROUPS * OUTPUTS, INPUTS))
    plain, quantized = draw(seed, 50)
    corrected = correct_weights(weights, measure(weights, plain, quantized), ridge)
    for group in range(GROUPS):
        rows = slice(group * OUTPUTS, (group + 1) * OUTPUTS)
        held = ridge * np.mean(np.square(quantized[group]).mean(1))
        # Each unknown has a further row that asks it to stay: sqrt(n r) V = sqrt(n r) W.
        stay = np.sqrt(50 * held) * np.eye(INPUTS)
        asked = np.concatenate([quantized[group].T, stay])
        wanted = np.concatenate([(weights[rows] @ plain[group]).T, stay @ weights[rows].T])
        solved = np.linalg.lstsq(asked, wanted, rcond=None)[0].T
        np.testing.assert_allclose(corrected[rows], solved, rtol=1e-5, atol=1e-6)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), fit=st.sampled_from([8, 12, 60]), gain=st.sampled_from([0.8, 1]))
def test_the_ridge_is_the_one_with_the_least_error_on_held_out_pictures(seed, fit, gain):
    problem = make_problem(seed, fit, gain=gain)
    errors = {
        ridge: problem.held_out.row_errors(
            problem.weights, correct_weights(problem.weights, problem.fit, ridge)
        ).sum()
        for ridge in RIDGES
    }
    errors[None] = LEAST_GAIN * problem.held_out.row_errors(problem.weights, problem.weights).sum()
    assert choose_ridge(problem) == min(errors, key=errors.__getitem__)


def test_every_ridge_and_none_are_chosen_by_some_layer():
    problems = (
        make_problem(seed, fit, gain=gain)
        for seed in range(20)
        for fit in (4, 8, 60, 500)
        for gain in (0.8, 1.0)
    )
    assert {choose_ridge(problem) for problem in problems} == {None, *RIDGES}


@pytest.mark.parametrize("missing", ["fit", "held_out"])
def test_without_pictures_that_judge_the_weights_stay(missing):
    problem = make_problem(1)
    assert choose_ridge(problem) is not None
    assert choose_ridge(replace(problem, **{missing: None})) is None


def test_weights_are_corrected_before_they_are_rounded_unless_told_otherwise():
    problem = make_problem(1, fit=500, held_out=500)
    corrected, plain = (GPTQ(corrects_inputs=flag).round_weights(problem) for flag in (True, False))
    errors = [
        problem.held_out.row_errors(problem.weights, item.integers * item.scales).sum()
        for item in (corrected, plain)
    ]
    assert errors[0] < LEAST_GAIN * errors[1]
    assert corrected.how == f"gptq, inputs corrected with ridge {choose_ridge(problem):g}"
    assert plain.how == "gptq"
