"""How much evidence a check collects: from a smoke test to what MLPerf asks of a vehicle."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from artifacts.errors import InputError
from latency_budget.budget_values import (
    check_choice,
    check_confidence,
    check_count,
    check_table,
    refuse_unknown,
)

RULES = ("order", "sprt", "cluster")
MOST_FRAMES = 10_000_000
"""More than three days at 30 Hz; the times of so many still fit into memory."""


@dataclass(frozen=True, kw_only=True)
class Tier:
    """How much evidence a check collects.

    Attributes:
        frames: frames to time, over all processes together.
        min_frames: with the rule "sprt", a passing run may end after so many; 0 for `frames`.
        confidence: of the claim on the percentile.
        rule: "order" (order statistics), "sprt" (sequential) or "cluster" (order statistics and
            the burst-aware bound).
        p999_confidence: also claim P99.9 within the deadline at this confidence; None for no claim.
        restarts: processes that share the frames.
        stages_imply_frame: also claim each stage at 1 - 0.01 / k, which implies the frame's P99.
        attempts: how often the same file may be tried; the error chance is shared among them.
            None for any number, which is counted and shown.
    """

    frames: int
    min_frames: int = 0
    confidence: float = 0.95
    rule: str = "order"
    p999_confidence: float | None = None
    restarts: int = 1
    stages_imply_frame: bool = False
    attempts: int | None = None

    def spend(self) -> "Tier":
        """Returns the tier with each attempt's share of the error chance (Bonferroni)."""
        if not self.attempts or self.attempts == 1:
            return self
        shared = {
            name: 1 - (1 - value) / self.attempts
            for name in ("confidence", "p999_confidence")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **shared)


TIERS: dict[str, Tier] = {
    "smoke": Tier(frames=100),
    "pr": Tier(frames=1980, min_frames=1000, rule="sprt"),
    "nightly": Tier(frames=18_000, rule="cluster", restarts=3, stages_imply_frame=True),
    "release": Tier(
        frames=54_000,
        confidence=0.99,
        rule="cluster",
        p999_confidence=0.95,
        restarts=3,
        stages_imply_frame=True,
        attempts=1,
    ),
    "mlperf-automotive": Tier(frames=100_000, confidence=0.99, p999_confidence=0.99, attempts=1),
}


def parse_tiers(source: str, values: Mapping[str, Any]) -> dict[str, Tier]:
    """Returns `TIERS` with the values of a budget file's `[tiers.NAME]` tables.

    Raises:
        InputError: a key is unknown or a value is wrong.
    """
    tiers = dict(TIERS)
    for name, value in values.items():
        key = f"tiers.{name}"
        table = check_table(source, key, value)
        refuse_unknown(source, f"{key}.", table, set(Tier.__dataclass_fields__))
        changes = {field: _check(source, f"{key}.{field}", field, table[field]) for field in table}
        tier = replace(tiers.get(name, Tier(frames=1000)), **changes)
        if "frames" in changes and "min_frames" not in changes:
            tier = replace(tier, min_frames=min(tier.min_frames, tier.frames))
        if tier.restarts > tier.frames or tier.min_frames > tier.frames:
            raise InputError(
                f"{source}: {key} has {tier.restarts} restarts and at least {tier.min_frames} "
                f"frames of {tier.frames}",
                "no more than frames",
            )
        tiers[name] = tier
    return tiers


def _check(source: str, key: str, field: str, value: Any) -> Any:
    if field in ("frames", "restarts", "attempts"):
        return check_count(source, key, value, low=1, high=MOST_FRAMES)
    if field == "min_frames":
        return check_count(source, key, value, low=0)
    if field == "rule":
        return check_choice(source, key, value, RULES)
    if field == "stages_imply_frame":
        if not isinstance(value, bool):
            raise InputError(f"{source}: {key} = {value!r}", "true or false")
        return value
    return check_confidence(source, key, value)
