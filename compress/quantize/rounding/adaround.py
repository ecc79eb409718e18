"""AdaRound: learns for each weight whether it is rounded up or down.

Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization" (ICML 2020): V = s
(floor(W / s) + h(v)) with the rectified sigmoid h (equation 23), and the loss
|W x - V q|^2 + lambda * sum(1 - |2 h - 1|^beta) (equations 21 and 24), beta falling from 20 to 2.
The squared error is written with the inputs' second moments, so a step costs rows * in^2 whatever
the number of columns, and its gradient is 2 (V - W) H. Added to the paper: a few starts, of which
each row keeps the best; sweeps of coordinate descent on all integers; refitted scales.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from compress.quantize.qparams import IntegerGrid
from compress.quantize.rounding.contract import RoundedWeights, RoundingProblem
from compress.quantize.rounding.descend import descend, sweep_columns
from compress.quantize.rounding.moment_rounding import MomentRounding
from compress.quantize.rounding.moments import Moments
from compress.quantize.rounding.target import Objective

Real = NDArray[np.float64]

STRETCH_LOW, STRETCH_HIGH = -0.1, 1.1
FIRST_BETA, LAST_BETA = 20.0, 2.0
WARM_UP = 0.2
_DECAYS = (0.9, 0.999)
_VALUES_AT_ONCE = 1 << 15
"""Starts with no more learn together: calls cost time in small layers, memory in large ones."""


@dataclass(frozen=True, kw_only=True)
class AdaRound(MomentRounding):
    """Rounds weights up or down, as suits the output best.

    Attributes:
        iterations: steps of Adam.
        learning_rate: its step size.
        regularization: lambda, relative to the mean squared input.
        starts: how often each row is learned, the first time from its own weights and then from
            random ones.
        damping: share of the Hessian's mean diagonal that is added to it.
        sweeps: passes of coordinate descent afterwards.
        corrects_inputs: see `MomentRounding`.
    """

    iterations: int = 400
    learning_rate: float = 0.05
    regularization: float = 0.5
    starts: int = 4
    damping: float = 0.01
    sweeps: int = 3
    corrects_inputs: bool = True

    def __post_init__(self) -> None:
        if self.sweeps < 0:
            raise InputError(f"sweeps are {self.sweeps}", "0 or more")
        for name in ("iterations", "learning_rate", "regularization", "starts", "damping"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}", "above 0")

    def round_to_fit(
        self, problem: RoundingProblem, moments: Moments, ridge: float | None
    ) -> RoundedWeights:
        """Rounds towards given moments, see `MomentRounding.round_to_fit`."""
        task = Objective.of(problem, moments, ridge, self.damping)
        integers = self.search(task.target, task.steps, task.hessian, problem.grid)
        integers, scales = descend(task, integers, problem.grid, self.sweeps)
        return task.rounded(integers, scales, "adaround", ridge)

    def search(self, target: Real, steps: Real, hessian: Real, grid: IntegerGrid) -> Real:
        """Returns the best integers of all starts, each after a sweep; arguments as for `learn`."""
        rng = np.random.default_rng(0)
        shares = rng.random((self.starts, *target.shape))
        _, shares[0] = _split(target, steps, grid)
        best = np.zeros_like(target)
        least = np.full(target.shape[:2], np.inf)
        at_once = max(1, _VALUES_AT_ONCE // target.size)
        parts = [shares[first : first + at_once] for first in range(0, self.starts, at_once)]
        for part in parts:
            for integers in self.learn(target, steps, hessian, grid, part):
                integers = sweep_columns(target, integers, steps, hessian, grid)
                error = target - integers * steps
                loss = (error @ hessian * error).sum(axis=2)
                best = np.where((loss < least)[:, :, None], integers, best)
                least = np.minimum(loss, least)
        return best

    def learn(
        self,
        target: Real,
        steps: Real,
        hessian: Real,
        grid: IntegerGrid,
        shares: Real | None = None,
    ) -> Real:
        """Returns integers next to target / steps, before any descent, [..., groups, out, in].

        Args:
            target: [groups, out, in] real weights.
            steps: [groups, out, in] the step of each.
            hessian: [groups, in, in], positive definite.
            grid: the integers that are allowed.
            shares: [..., groups, out, in] h of each start; None for one, the weights' own.
        """
        floor, own = _split(target, steps, grid)
        size = np.einsum("gii->g", hessian)[:, None, None] / hessian.shape[1]
        unit = steps / np.sqrt(np.square(steps).mean(axis=2, keepdims=True))
        wanted = target / steps - floor
        hidden = _unstretch(np.clip(own if shares is None else shares, 0.01, 0.99))
        moving, spread = np.zeros_like(hidden), np.zeros_like(hidden)
        for turn in range(1, self.iterations + 1):
            sigmoid = 1 / (1 + np.exp(-hidden))
            stretched = sigmoid * (STRETCH_HIGH - STRETCH_LOW) + STRETCH_LOW
            share = np.clip(stretched, 0.0, 1.0)
            gradient = 2 * (((share - wanted) * unit) @ hessian) * unit / size
            gradient += self._push(share, turn / self.iterations)
            is_free = (stretched > 0) & (stretched < 1)
            gradient *= is_free * sigmoid * (1 - sigmoid) * (STRETCH_HIGH - STRETCH_LOW)
            moving += (1 - _DECAYS[0]) * (gradient - moving)
            spread += (1 - _DECAYS[1]) * (np.square(gradient) - spread)
            mean, square = moving / (1 - _DECAYS[0] ** turn), spread / (1 - _DECAYS[1] ** turn)
            hidden -= self.learning_rate * mean / (np.sqrt(square) + 1e-12)
        return floor + (hidden >= 0)

    def _push(self, share: Real, progress: float) -> Real:
        """Returns the gradient of the regularization, which drives shares to 0 and 1."""
        if progress < WARM_UP:
            return np.zeros_like(share)
        past = (progress - WARM_UP) / (1 - WARM_UP)
        beta = LAST_BETA + (FIRST_BETA - LAST_BETA) * 0.5 * (1 + np.cos(past * np.pi))
        offset = 2 * share - 1
        slope = -2 * beta * np.sign(offset) * np.abs(offset) ** (beta - 1)
        return np.asarray(self.regularization * slope)


def _split(target: Real, steps: Real, grid: IntegerGrid) -> tuple[Real, Real]:
    """Returns the integer below each weight, and how much of the way to the next one it is."""
    low, high = grid.limits(target, steps)
    exact = np.clip(target / steps, low, high)
    floor = np.minimum(np.floor(exact), high - 1)
    return floor, exact - floor


def _unstretch(share: Real) -> Real:
    """Returns v with h(v) = share."""
    sigmoid = (share - STRETCH_LOW) / (STRETCH_HIGH - STRETCH_LOW)
    return np.asarray(np.log(sigmoid / (1 - sigmoid)))
