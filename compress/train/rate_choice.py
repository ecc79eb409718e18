"""A learning rate and where it comes from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RateChoice:
    """A learning rate and where it comes from.

    Attributes:
        rate: the highest of the training.
        reason: a few words.
        trials: (rate, the probe's score after its trial) from the lowest rate on; empty where
            nothing was tried. A trial that diverged has an infinite score.
    """

    rate: float
    reason: str
    trials: tuple[tuple[float, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns it for JSON; the score of a trial that diverged is None."""
        trials = [
            {"rate": rate, "score": score if math.isfinite(score) else None}
            for rate, score in self.trials
        ]
        return {"rate": self.rate, "reason": self.reason, "trials": trials}


def restore_choice(values: Mapping[str, Any] | None) -> RateChoice | None:
    """Returns a choice from its fields; None where there is none."""
    if values is None:
        return None
    trials = tuple((rate, score) for rate, score in values["trials"])
    return RateChoice(rate=values["rate"], reason=values["reason"], trials=trials)
