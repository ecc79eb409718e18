"""The real weights that rounding aims at, and the Hessian it measures distances with.

The inputs q of the quantized prefix differ from the float ones x, so W is not the best real matrix
for them: W* = W (C + r I) (H + r I)^-1 comes closest to the float output W x, with a ridge r that
holds it near W. Few pictures fit too closely (docs/experiments.md), so the ridge is the one, or
none at all, with the least error on held-out pictures.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compress.quantize.rounding.contract import RoundedWeights, RoundingProblem
from compress.quantize.rounding.moments import Moments

RIDGES = (1.0, 0.1, 0.01)
LEAST_GAIN = 0.98

Real = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Minimise tr((target - V) hessian (target - V)') over what the grid allows.

    Attributes:
        target: [groups, out, in] real weights.
        hessian: [groups, in, in], positive definite.
        scales: [groups, out, blocks].
        blocks: [in].
    """

    target: Real
    hessian: Real
    scales: Real
    blocks: NDArray[np.int64]

    @classmethod
    def of(
        cls, problem: RoundingProblem, moments: Moments, ridge: float | None, damping: float
    ) -> "Objective":
        """Aims at the problem's weights, corrected for the moments if there is a ridge."""
        weights = problem.weights
        if ridge is not None:
            weights = correct_weights(weights, moments, ridge)
        groups = len(moments.hessian)
        return cls(
            target=weights.reshape(groups, -1, weights.shape[1]),
            hessian=damp(moments.hessian, damping),
            scales=problem.scales.reshape(groups, -1, problem.scales.shape[1]),
            blocks=problem.blocks,
        )

    def rounded(
        self, integers: Real, scales: Real, how: str, ridge: float | None
    ) -> RoundedWeights:
        """Returns integers [groups, out, in] and scales [groups, out, blocks] as rows."""
        return RoundedWeights(
            integers=integers.reshape(-1, integers.shape[2]).astype(np.int32),
            scales=scales.reshape(-1, scales.shape[2]),
            how=how if ridge is None else f"{how}, inputs corrected with ridge {ridge:g}",
        )

    @property
    def steps(self) -> Real:
        """The step of each weight, [groups, out, in]."""
        return self.scales[:, :, self.blocks]


def damp(hessian: Real, share: float) -> Real:
    """Adds `share` of the mean diagonal to the diagonal; a Hessian of zeros becomes the identity.

    An input that never varies keeps only what is added, so its weights are rounded on their own.
    """
    inputs = hessian.shape[1]
    mean = np.einsum("gii->g", hessian) / inputs
    added = np.where(mean > 0, share * mean, 1.0)
    damped = hessian.copy()
    np.einsum("gii->gi", damped)[...] += added[:, None]
    return damped


def correct_weights(weights: Real, moments: Moments, ridge: float) -> Real:
    """Returns W* for the moments, [out, in]; the ridge is a share of H's mean diagonal."""
    groups = len(moments.hessian)
    stacked = weights.reshape(groups, -1, weights.shape[1])
    added = damp(moments.hessian, ridge) - moments.hessian
    solved = np.linalg.solve(
        (moments.hessian + added).transpose(0, 2, 1),
        (stacked @ (moments.cross + added)).transpose(0, 2, 1),
    )
    return np.asarray(solved.transpose(0, 2, 1)).reshape(weights.shape)


def choose_ridge(problem: RoundingProblem) -> float | None:
    """Returns the ridge with the least error on held-out pictures; None to leave W as it is."""
    if problem.fit is None or problem.held_out is None:
        return None
    weights = problem.weights
    least = problem.held_out.row_errors(weights, weights).sum() * LEAST_GAIN
    best = None
    for ridge in RIDGES:
        corrected = correct_weights(weights, problem.fit, ridge)
        error = problem.held_out.row_errors(weights, corrected).sum()
        if error < least:
            least, best = error, ridge
    return best
