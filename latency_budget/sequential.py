"""The sequential verdict: Wald's probability ratio test on misses, valid at every frame.

A. Wald, "Sequential Tests of Statistical Hypotheses", Annals of Mathematical Statistics 16 (1945).
H0: the miss rate is `q0`; H1: it is `q1`. The log likelihood ratio grows with every frame that
keeps the deadline and falls with every miss. Looking after each frame does not inflate the error
of a pass, which the fixed-n claim does not allow. Where the test turns to H0, a pass is ruled out;
that alone does not show that more than `q0` is missed (9 of 1440 frames turn it, 0.6 %), so it is a
fail only where the frames up to there refute "at most q0" as well. A pass has to hold at the last
frame too: a system that gets slower would else pass by its first frames. It holds for independent
misses; where they come in bursts, use `latency_budget.bursts`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latency_budget.binomial import binomial_tail


@dataclass(frozen=True)
class SequentialClaim:
    """The outcome of the sequential test.

    Attributes:
        outcome: "pass", "fail" or "inconclusive".
        decided_at: after how many frames a pass was proven or ruled out, None if neither.
        more_frames: frames without a miss still needed for a pass, 0 once it is decided.
    """

    outcome: str
    decided_at: int | None
    more_frames: int


def judge_sequence(
    misses: NDArray[np.bool_],
    *,
    q0: float = 0.01,
    q1: float = 0.002,
    alpha: float = 0.05,
    beta: float = 0.05,
) -> SequentialClaim:
    """Runs the test over the frames in their order.

    Args:
        misses: [n] True where the frame missed its deadline.
        q0: the miss rate to refute.
        q1: the miss rate of a good system, below `q0`.
        alpha: chance of a pass where the rate is `q0`.
        beta: chance that a pass is ruled out where the rate is `q1`.
    """
    on_miss, on_hit = math.log(q1 / q0), math.log((1 - q1) / (1 - q0))
    accept, reject = math.log(1 / alpha), math.log(beta / (1 - alpha))
    ratio = np.cumsum(np.where(misses, on_miss, on_hit))
    decided = np.flatnonzero((ratio >= accept) | (ratio <= reject))
    if len(decided):
        count = int(decided[0]) + 1
        if ratio[count - 1] >= accept:
            return _settle(count, float(ratio[-1]), accept, on_hit)
        is_refuted = binomial_tail(int(misses[:count].sum()), count, q0) <= alpha
        return SequentialClaim("fail" if is_refuted else "inconclusive", count, 0)
    reached = float(ratio[-1]) if len(ratio) else 0.0
    return SequentialClaim("inconclusive", None, math.ceil((accept - reached) / on_hit))


def _settle(count: int, reached: float, accept: float, on_hit: float) -> SequentialClaim:
    """Lets a pass stand only while the frames after it do not take it back."""
    if reached >= accept:
        return SequentialClaim("pass", count, 0)
    return SequentialClaim("inconclusive", None, math.ceil((accept - reached) / on_hit))
