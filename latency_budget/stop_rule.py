"""When a paced run may end before its last frame: the sequential test has decided."""

from dataclasses import dataclass

from latency_budget.run import Nanoseconds
from latency_budget.sequential import judge_sequence


@dataclass(frozen=True, kw_only=True)
class SequentialStop:
    """Ends a run that surely fails at once, and one that passes when it has its fewest frames.

    Where a pass is ruled out and a fail not proven, the remaining frames may still prove it.

    Attributes:
        deadline_ns: a frame that takes longer is a miss.
        min_frames: frames that a passing run has at least, for the other gates' sake.
        confidence: of the test.
    """

    deadline_ns: int
    min_frames: int
    confidence: float = 0.95

    def __call__(self, latency_ns: Nanoseconds) -> bool:
        """Returns whether the frames so far are enough."""
        claim = judge_sequence(latency_ns > self.deadline_ns, alpha=1 - self.confidence)
        if claim.outcome == "fail":
            return True
        return claim.outcome == "pass" and len(latency_ns) >= self.min_frames
