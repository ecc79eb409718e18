"""The sequential verdict: Wald's probability ratio test on misses, valid at every frame.

A. Wald, "Sequential Tests of Statistical Hypotheses", Annals of Mathematical Statistics 16 (1945).
H0: the miss rate is `q0`; H1: it is `q1`. The log likelihood ratio grows with every frame that
keeps the deadline and falls with every miss. Looking after each frame does not inflate the error,
which the fixed-n claim does not allow. It holds for independent misses; where they come in bursts,
use `latency_budget.bursts`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SequentialClaim:
    """The outcome of the sequential test.

    Attributes:
        outcome: "pass", "fail" or "inconclusive".
        decided_at: after how many frames, None if undecided.
        more_frames: frames without a miss still needed for a pass.
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
        beta: chance of a fail where the rate is `q1`.
    """
    on_miss, on_hit = math.log(q1 / q0), math.log((1 - q1) / (1 - q0))
    accept, reject = math.log(1 / alpha), math.log(beta / (1 - alpha))
    ratio = np.cumsum(np.where(misses, on_miss, on_hit))
    decided = np.flatnonzero((ratio >= accept) | (ratio <= reject))
    if len(decided):
        at = int(decided[0])
        return SequentialClaim("pass" if ratio[at] >= accept else "fail", at + 1, 0)
    reached = float(ratio[-1]) if len(ratio) else 0.0
    return SequentialClaim("inconclusive", None, math.ceil((accept - reached) / on_hit))
