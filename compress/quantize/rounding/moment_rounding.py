"""What the methods that fit the layer's output have in common."""

from abc import ABC, abstractmethod
from typing import ClassVar

from compress.quantize.rounding.contract import RoundedWeights, RoundingProblem
from compress.quantize.rounding.moments import Moments
from compress.quantize.rounding.nearest import Nearest
from compress.quantize.rounding.target import choose_ridge


class MomentRounding(ABC):
    """Rounds weights so that the output changes little, judged by the moments of the inputs.

    Attributes:
        corrects_inputs: aims at the real weights that make up for the errors of the quantized
            prefix, where held-out pictures confirm it.
    """

    corrects_inputs: bool
    needs_inputs: ClassVar[bool] = True

    def round_weights(self, problem: RoundingProblem) -> RoundedWeights:
        """Returns integers and scales with a small output error; nearest where nothing was seen."""
        if problem.fit is None:
            return Nearest().round_weights(problem)
        ridge = choose_ridge(problem) if self.corrects_inputs else None
        return self.round_to_fit(problem, problem.fit.joined(problem.held_out), ridge)

    @abstractmethod
    def round_to_fit(
        self, problem: RoundingProblem, moments: Moments, ridge: float | None
    ) -> RoundedWeights:
        """Rounds towards given moments.

        Args:
            problem: weights, scales and grid.
            moments: what to fit to.
            ridge: of the corrected weights (`target.correct_weights`); None aims at the weights.
        """
