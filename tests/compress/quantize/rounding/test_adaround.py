"""AdaRound against trying every combination."""

import itertools

import numpy as np
import pytest

from artifacts.errors import InputError
from compress.quantize.qparams import WEIGHT_GRIDS
from compress.quantize.rounding import AdaRound
from compress.quantize.rounding.target import damp

INT4 = WEIGHT_GRIDS["int4"]


def make_problems(count, inputs):
    """Returns `count` of them, one per group."""
    rng = np.random.default_rng(inputs)
    rows = rng.standard_normal((count, 3, inputs))
    mixing = rng.standard_normal((count, inputs, inputs))
    data = mixing @ rng.standard_normal((count, inputs, 200))
    steps = np.broadcast_to(np.abs(rows).max(2, keepdims=True) / 7, rows.shape)
    return rows, steps, damp(data @ data.transpose(0, 2, 1) / 200, 0.01)


def losses(rows, integers, steps, hessian):
    error = rows - integers * steps
    return (error @ hessian * error).sum(axis=2)


def search_all(rows, steps, hessian):
    """Returns the least loss of each row over all ways to round up or down."""
    floor = np.minimum(np.floor(rows / steps), INT4.highest - 1)
    choices = np.asarray(list(itertools.product((0, 1), repeat=rows.shape[2])))
    return np.stack(
        [
            losses(rows[:, [row]], floor[:, [row]] + choices[None], steps[:, [row]], hessian).min(
                axis=1
            )
            for row in range(rows.shape[1])
        ],
        axis=1,
    )


@pytest.mark.parametrize("inputs", [4, 9, 12])
def test_it_comes_close_to_the_best_of_all_combinations(inputs):
    rows, steps, hessian = make_problems(12, inputs)
    best = search_all(rows, steps, hessian)
    nearest, learned, searched = (
        losses(rows, integers, steps, hessian)
        for integers in (
            np.clip(np.rint(rows / steps), INT4.lowest, INT4.highest),
            AdaRound().learn(rows, steps, hessian, INT4),
            AdaRound().search(rows, steps, hessian, INT4),
        )
    )
    assert (learned >= best * (1 - 1e-9)).all()
    lost = nearest.sum() - best.sum()
    assert nearest.sum() - learned.sum() > 0.5 * lost
    assert nearest.sum() - searched.sum() > 0.9 * lost


def test_what_it_learns_is_next_to_the_real_weights():
    rows, steps, hessian = make_problems(1, 9)
    integers = AdaRound().learn(rows, steps, hessian, INT4)
    assert (np.abs(integers - np.clip(rows / steps, INT4.lowest, INT4.highest)) <= 1 + 1e-9).all()


@pytest.mark.parametrize(
    "name", ["iterations", "learning_rate", "regularization", "starts", "damping"]
)
def test_settings_that_make_no_sense_are_refused(name):
    with pytest.raises(InputError, match=name):
        AdaRound(**{name: 0})
