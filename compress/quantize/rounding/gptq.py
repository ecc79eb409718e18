"""GPTQ: rounds column by column and lets the columns left make up for each error.

Frantar et al., "GPTQ" (ICLR 2023), algorithm 1: with U the upper Cholesky factor of H^-1, column i
is rounded, and its error divided by U_ii, times row i of U, is taken from the columns to its right.
Columns with large H_ii come first (activation ordering), and a block of columns is finished before
the ones behind it are updated. Three things are added. The scale of each row is the one of a few
factors whose rounding ends with the least error. Sweeps of coordinate descent and refitted scales
follow, which never raise that error. And the target may be the weights that fit the float output
best (`target.py`).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from compress.quantize.layer_weights import widest_scales
from compress.quantize.qparams import IntegerGrid
from compress.quantize.rounding.column_limits import pick_column, turn_limit
from compress.quantize.rounding.contract import RoundedWeights, RoundingProblem
from compress.quantize.rounding.descend import descend
from compress.quantize.rounding.moment_rounding import MomentRounding
from compress.quantize.rounding.moments import Moments
from compress.quantize.rounding.target import Objective, damp

Real = NDArray[np.float64]
_FIRST_DAMPING, _MORE_DAMPING = 1e-6, 10.0


@dataclass(frozen=True, kw_only=True)
class GPTQ(MomentRounding):
    """Rounds weights so that the errors of a row's weights cancel in its output.

    Attributes:
        damping: share of the Hessian's mean diagonal that is added to it.
        ordered: rounds the columns with the largest inputs first.
        block: columns that are finished before the ones behind them are updated.
        clip_factors: tried on the scale that reaches a row's (or block's) largest weight.
        sweeps: passes of coordinate descent afterwards.
        corrects_inputs: see `MomentRounding`.
    """

    damping: float = 0.01
    ordered: bool = True
    block: int = 64
    clip_factors: tuple[float, ...] = (1.0, 0.92, 0.84, 0.76, 0.68, 0.6)
    sweeps: int = 3
    corrects_inputs: bool = True

    def __post_init__(self) -> None:
        if not self.damping > 0:
            raise InputError(f"damping is {self.damping}", "above 0")
        if self.block < 1 or self.sweeps < 0:
            raise InputError(f"block is {self.block}, sweeps {self.sweeps}", "1 and 0 at least")
        if not all(0 < factor <= 1 for factor in self.clip_factors):
            raise InputError(f"clip_factors are {self.clip_factors}", "above 0, up to 1")

    def round_to_fit(
        self, problem: RoundingProblem, moments: Moments, ridge: float | None
    ) -> RoundedWeights:
        """Rounds towards given moments, see `MomentRounding.round_to_fit`."""
        task = Objective.of(problem, moments, ridge, self.damping)
        integers, scales = self._search(task, problem.grid)
        found = replace(task, scales=scales)
        integers, scales = descend(found, integers, problem.grid, self.sweeps)
        return task.rounded(integers, scales, "gptq", ridge)

    def _search(self, task: Objective, grid: IntegerGrid) -> tuple[Real, Real]:
        """Rounds with the given scales and with each clip factor; keeps the best for each row."""
        widest = _widest_scales(task, grid)
        tried = [task.scales] + [
            (widest * clip).astype(np.float32).astype(np.float64) for clip in self.clip_factors
        ]
        groups, outputs, _ = task.target.shape
        rows = np.tile(task.target, (1, len(tried), 1))
        scales = np.concatenate(tried, axis=1)
        steps = scales[:, :, task.blocks]
        integers, losses = round_with_losses(
            rows, steps, task.hessian, grid, ordered=self.ordered, block=self.block
        )
        best = losses.reshape(groups, len(tried), outputs).argmin(axis=1)
        pick = (best * outputs + np.arange(outputs))[:, :, None]
        return np.take_along_axis(integers, pick, axis=1), np.take_along_axis(scales, pick, axis=1)


def round_with_losses(
    rows: Real, steps: Real, hessian: Real, grid: IntegerGrid, *, ordered: bool, block: int
) -> tuple[Real, Real]:
    """Rounds by the paper's algorithm 1, column by column.

    U needs no computing: with H = R R', U is R^-1, so (W - V) R = e, where e_i is the error of
    column i divided by U_ii. Its column i says what is rounded: w_i + sum_j<i (w_j - v_j) R_ji /
    R_ii. The loss (W - V) H (W - V)' is e e'. Weights are turned to [groups, in, rows], so that a
    column of them lies in one piece.

    Args:
        rows: [groups, rows, in] real weights W.
        steps: [groups, rows, in] the step of each.
        hessian: [groups, in, in] H, positive definite.
        grid: the integers that are allowed.
        ordered: by falling diagonal of the Hessian.
        block: columns that are finished before the ones behind them are updated.

    Returns:
        the integers, [groups, rows, in], and what each row loses, [groups, rows].
    """
    order = np.tile(np.arange(rows.shape[2]), (len(rows), 1))
    if ordered:
        order = np.argsort(-np.einsum("gii->gi", hessian), axis=1, kind="stable")
    factor = factor_hessian(hessian, order)
    sizes = np.einsum("gii->gi", factor).copy()
    factor /= sizes[:, None]
    turned = order[:, :, None]
    low, high = (turn_limit(limit, turned) for limit in grid.limits(rows, steps))
    left = np.take_along_axis(rows.transpose(0, 2, 1), turned, axis=1)
    steps = np.take_along_axis(steps.transpose(0, 2, 1), turned, axis=1)
    wanted, integers = left.copy(), np.empty_like(left)
    losses = np.zeros((len(rows), rows.shape[1]))
    inputs = left.shape[1]
    for start in range(0, inputs, block):
        end = min(start + block, inputs)
        for column in range(start, end):
            step = steps[:, column]
            value = np.rint(left[:, column] / step)
            np.clip(value, pick_column(low, column), pick_column(high, column), out=value)
            integers[:, column] = value
            value *= step
            losses += np.square((left[:, column] - value) * sizes[:, column, None])
            wanted[:, column] -= value
            behind = factor[:, column, column + 1 : end, None]
            left[:, column + 1 : end] += wanted[:, None, column] * behind
        left[:, end:] += factor[:, start:end, end:].transpose(0, 2, 1) @ wanted[:, start:end]
    placed = np.empty_like(integers)
    np.put_along_axis(placed, np.broadcast_to(turned, placed.shape), integers, 1)
    return np.ascontiguousarray(placed.transpose(0, 2, 1)), losses


def factor_hessian(hessian: Real, order: NDArray[np.int64]) -> Real:
    """Returns upper triangular R with R R' = H, columns in the given order, [groups, in, in].

    It is the Cholesky factor of H read backwards. A Hessian that rounding errors made indefinite
    gets a larger diagonal until it is not.
    """
    back = order[:, ::-1]
    groups = np.arange(len(hessian))[:, None, None]
    ordered = hessian[groups, back[:, :, None], back[:, None, :]]
    added = 0.0
    while True:
        try:
            lower = np.linalg.cholesky(damp(ordered, added))
        except np.linalg.LinAlgError:
            added = max(added * _MORE_DAMPING, _FIRST_DAMPING)
        else:
            return np.ascontiguousarray(lower[:, ::-1, ::-1], np.float64)


def _widest_scales(task: Objective, grid: IntegerGrid) -> Real:
    """Returns the scales that reach the largest weight of each block, [groups, out, blocks]."""
    groups, outputs, inputs = task.target.shape
    rows = task.target.reshape(-1, inputs)
    per_block = [
        widest_scales(rows[:, task.blocks == index], grid) for index in range(task.scales.shape[2])
    ]
    return np.stack(per_block, axis=1).reshape(groups, outputs, -1)
