"""The rounding of each layer that has the least error on held-out pictures."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from compress.quantize.rounding.adaround import AdaRound
from compress.quantize.rounding.contract import RoundedWeights, RoundingProblem
from compress.quantize.rounding.gptq import GPTQ
from compress.quantize.rounding.moment_rounding import MomentRounding
from compress.quantize.rounding.moments import Moments
from compress.quantize.rounding.nearest import Nearest
from compress.quantize.rounding.target import choose_ridge


@dataclass(frozen=True, kw_only=True)
class Auto:
    """Tries nearest, GPTQ and, for few inputs, AdaRound, and is never worse than nearest.

    Each is fitted to a part of the calibration pictures (GPTQ with one scale only, to save time)
    and judged on the others. The best is then fitted to all of them, and kept if it still has less
    error than nearest on the others.

    Attributes:
        gptq, adaround: their settings.
        most_adaround_inputs: AdaRound is tried for layers with at most this many inputs.
    """

    gptq: GPTQ = field(default_factory=GPTQ)
    adaround: AdaRound = field(default_factory=AdaRound)
    most_adaround_inputs: int = 32
    needs_inputs: ClassVar[bool] = True

    def round_weights(self, problem: RoundingProblem) -> RoundedWeights:
        """Returns the integers and scales with the least error."""
        nearest = Nearest().round_weights(problem)
        if problem.fit is None:
            return nearest
        judge = problem.held_out or problem.fit
        least = _error(problem, judge, nearest)
        best: tuple[float, MomentRounding, float | None] | None = None
        for method, ridge in self._candidates(problem):
            trial = replace(method, clip_factors=()) if isinstance(method, GPTQ) else method
            error = _error(problem, judge, trial.round_to_fit(problem, problem.fit, ridge))
            if error < (least if best is None else best[0]):
                best = (error, method, ridge)
        if best is None:
            return nearest
        _, method, ridge = best
        everything = problem.fit.joined(problem.held_out)
        final = method.round_to_fit(problem, everything, ridge)
        return final if _error(problem, judge, final) <= least else nearest

    def _candidates(self, problem: RoundingProblem) -> list[tuple[MomentRounding, float | None]]:
        methods: list[MomentRounding] = [self.gptq]
        if problem.weights.shape[1] <= self.most_adaround_inputs:
            methods.append(self.adaround)
        found = choose_ridge(problem)
        ridges = (None,) if found is None else (None, found)
        return [(method, ridge) for method in methods for ridge in ridges]


def _error(problem: RoundingProblem, judge: Moments, rounded: RoundedWeights) -> float:
    values = rounded.integers * rounded.scales[:, problem.blocks]
    return float(judge.row_errors(problem.weights, values).sum())
