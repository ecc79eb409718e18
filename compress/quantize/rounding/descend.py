"""Coordinate descent on integers: each weight in turn takes the value that is best given the rest.

Behdin et al., "QuantEase" (2023), start it from any rounding; every move lowers the error
tr((W - V) H (W - V)') or leaves it, so the result is never worse than the start.
"""

import numpy as np
from numpy.typing import NDArray

from compress.quantize.qparams import SMALLEST_SCALE, IntegerGrid
from compress.quantize.rounding.column_limits import pick_column, turn_limit
from compress.quantize.rounding.target import Objective

Real = NDArray[np.float64]
_BLOCK = 64


def descend(task: Objective, integers: Real, grid: IntegerGrid, sweeps: int) -> tuple[Real, Real]:
    """Alternates sweeps over all columns and, where a row has one scale, refitting it.

    Args:
        task: what to minimise, with the scales to start from.
        integers: [groups, out, in] where to start.
        grid: the integers that are allowed.
        sweeps: how often.

    Returns:
        integers [groups, out, in] and scales [groups, out, blocks].
    """
    scales = task.scales
    for _ in range(sweeps):
        steps = scales[:, :, task.blocks]
        integers = sweep_columns(task.target, integers, steps, task.hessian, grid)
        if scales.shape[2] == 1:
            fitted = refit_scales(task.target, integers, scales[:, :, 0], task.hessian)
            scales = fitted[:, :, None]
    return integers, scales


def sweep_columns(
    target: Real, integers: Real, steps: Real, hessian: Real, grid: IntegerGrid
) -> Real:
    """Returns integers after one pass over all columns; the error does not grow.

    Args:
        target: [groups, out, in] the real weights W.
        integers: [groups, out, in] where to start.
        steps: [groups, out, in] the step of each weight.
        hessian: [groups, in, in] H, with a positive diagonal.
        grid: the integers that are allowed.
    """
    low, high = (turn_limit(limit) for limit in grid.limits(integers))
    gradient = np.ascontiguousarray(((target - integers * steps) @ hessian).transpose(0, 2, 1))
    turned = integers.transpose(0, 2, 1).copy()
    steps = np.ascontiguousarray(steps.transpose(0, 2, 1))
    groups, inputs, outputs = turned.shape
    for start in range(0, inputs, _BLOCK):
        end = min(start + _BLOCK, inputs)
        moved = np.empty((groups, end - start, outputs))
        local = gradient[:, start:end]
        for column in range(start, end):
            step = steps[:, column]
            own = hessian[:, column, column, None]
            best = np.rint(turned[:, column] + local[:, column - start] / (own * step))
            np.clip(best, pick_column(low, column), pick_column(high, column), out=best)
            move = (best - turned[:, column]) * step
            turned[:, column] = best
            moved[:, column - start] = move
            behind = hessian[:, column, column + 1 : end, None]
            local[:, column + 1 - start :] -= move[:, None] * behind
        gradient[:, end:] -= hessian[:, start:end, end:].transpose(0, 2, 1) @ moved
    return np.ascontiguousarray(turned.transpose(0, 2, 1))


def refit_scales(target: Real, integers: Real, scales: Real, hessian: Real) -> Real:
    """Returns the scale of each row, [groups, out], with the least error for its integers.

    s = (q H w') / (q H q'), where that is a usable scale; else the old one stays.
    """
    bent = integers @ hessian
    upper, lower = (bent * target).sum(axis=2), (bent * integers).sum(axis=2)
    fitted = upper / np.where(lower > 0, lower, 1.0)
    is_usable = (lower > 0) & (fitted > SMALLEST_SCALE)
    return np.where(is_usable, fitted, scales).astype(np.float32).astype(np.float64)
