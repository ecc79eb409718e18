"""A learning rate and where it comes from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RateChoice:
    """A learning rate and where it comes from.

    Attributes:
        rate: the highest of the training, as it was chosen.
        reason: a few words.
        trials: (rate, the probe's score after its trial) from the lowest rate on; empty where
            nothing was tried. A trial that diverged has an infinite score.
        fallen: (step, rate) of each time that it was lowered, see `rate_fall`.
    """

    rate: float
    reason: str
    trials: tuple[tuple[float, float], ...] = ()
    fallen: tuple[tuple[int, float], ...] = ()

    @property
    def now(self) -> float:
        """The highest rate from here on."""
        return self.fallen[-1][1] if self.fallen else self.rate

    def to_dict(self) -> dict[str, Any]:
        """Returns it for JSON; the score of a trial that diverged is None."""
        trials = [
            {"rate": rate, "score": score if math.isfinite(score) else None}
            for rate, score in self.trials
        ]
        fallen = [{"step": step, "rate": rate} for step, rate in self.fallen]
        return {"rate": self.rate, "reason": self.reason, "trials": trials, "fallen": fallen}


def restore_choice(values: Mapping[str, Any] | None) -> RateChoice | None:
    """Returns a choice from its fields; None where there is none."""
    if values is None:
        return None
    pairs = {name: tuple((a, b) for a, b in values[name]) for name in ("trials", "fallen")}
    return RateChoice(rate=values["rate"], reason=values["reason"], **pairs)
