"""The budget file: what a frame may cost, read from `budget.toml` and checked key by key."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from artifacts.errors import InputError
from artifacts.file_content import read_text
from artifacts.strict_toml import read_toml
from latency_budget.budget_values import (
    check_choice,
    check_count,
    check_number,
    check_table,
    name_nearest,
    refuse_unknown,
)
from latency_budget.head_metric import is_lower_better
from latency_budget.tiers import TIERS, Tier, parse_tiers

MODES = ("enforce", "report", "strict")
_MISSPELT = 0.8


@dataclass(frozen=True, kw_only=True)
class FrameBudget:
    """The whole frame's limits.

    Attributes:
        rate_hz: the camera's frames per second.
        deadline_ms: from a frame's arrival to its result.
        p99_over_p50: jitter limit, above 1.
        max_consecutive_misses: longest allowed run of missed frames.
        jitter_floor_ms: a P99 this close above P50 keeps the jitter limit whatever the ratio.
    """

    rate_hz: float = 30.0
    deadline_ms: float = 33.0
    p99_over_p50: float = 1.2
    max_consecutive_misses: int = 2
    jitter_floor_ms: float = 0.0

    @property
    def deadline_ns(self) -> int:
        """The deadline in nanoseconds, never longer than the frame period."""
        return min(round(self.deadline_ms * 1e6), int(1e9 / self.rate_hz))


@dataclass(frozen=True, kw_only=True)
class HeadContract:
    """What a head may lose against the reference.

    Attributes:
        metric: the metric's name, such as mAP50, mIoU or abs_rel.
        max_drop: largest allowed worsening, in the metric's own unit (a share, percent, pixels …);
            for an error such as abs_rel a rise. `quality_file` knows the unit's size.
        lower_is_better: the metric is an error; by its name where not given.

    Raises:
        InputError: the name tells no direction, and none is given.
    """

    metric: str
    max_drop: float
    lower_is_better: bool | None = None

    def __post_init__(self) -> None:
        """Settles the direction."""
        if self.lower_is_better is None:
            object.__setattr__(self, "lower_is_better", is_lower_better(self.metric))
        if self.lower_is_better is None:
            raise InputError(
                f"the metric '{self.metric}' is not known to be an error or a score",
                "lower_is_better = true or false beside it",
            )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A checked budget.

    Attributes:
        frame: the whole frame's limits.
        stages: P99 limit per stage in milliseconds.
        heads: contract per head.
        tiers: evidence per tier; those of `tiers.TIERS` always exist.
        modes: per driving mode the heads that are on.
        environment: "enforce" (a disturbed machine makes the verdict invalid), "report" (it is only
            shown) or "strict" (a sensor that cannot be read makes it invalid too).
    """

    frame: FrameBudget = field(default_factory=FrameBudget)
    stages: dict[str, float] = field(default_factory=dict)
    heads: dict[str, HeadContract] = field(default_factory=dict)
    tiers: dict[str, Tier] = field(default_factory=lambda: dict(TIERS))
    modes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    environment: str = "enforce"

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Reads a budget file.

        Raises:
            InputError: the file is missing, empty or not TOML, a key is unknown (the nearest one is
                named) or a value is of the wrong kind or out of range (with a hint on its unit).
        """
        path = Path(path)
        try:
            text = read_text(path)
        except OSError as error:
            raise InputError(
                f"cannot read the budget {path}: {error.strerror or error}",
                "a budget.toml",
                "see examples/budget.toml, or write one with `budget-check init`",
            ) from error
        except UnicodeDecodeError as error:
            raise InputError(f"the budget {path} is not UTF-8 text", "a TOML file") from error
        try:
            values = read_toml(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the budget {path} is not TOML: {error}") from error
        if not values:
            raise InputError(
                f"the budget {path} is empty",
                "limits, or at least the table [frame], whose defaults hold then",
                "copy it again; see examples/budget.toml",
            )
        return cls.from_dict(values, source=str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "budget") -> Self:
        """Builds a budget from the tables of a budget file; see `load`."""
        tables = {"frame", "stages", "heads", "tiers", "modes", "environment"}
        refuse_unknown(source, "", values, tables)
        for name in tables & set(values):
            check_table(source, name, values[name])
        environment = values.get("environment", {})
        refuse_unknown(source, "environment.", environment, {"mode"})
        heads = values.get("heads", {})
        return cls(
            frame=_parse_frame(source, values.get("frame", {})),
            stages={
                name: check_number(source, f"stages.{name}", value, unit="ms", high=10_000)
                for name, value in values.get("stages", {}).items()
            },
            heads={
                name: _parse_head(source, f"heads.{name}", value) for name, value in heads.items()
            },
            tiers=parse_tiers(source, values.get("tiers", {})),
            modes=_parse_modes(source, values.get("modes", {}), heads),
            environment=check_choice(
                source, "environment.mode", environment.get("mode", "enforce"), MODES
            ),
        )

    def for_part(self, names: tuple[str, ...]) -> "Budget":
        """Returns the budget of a part of the frame.

        Its deadline is what the budgets of all other stages leave of the frame's, or of the time
        between two frames where that is shorter: if every stage keeps its own, the frame keeps it.

        Args:
            names: the stages that are measured.

        Raises:
            InputError: the other stages leave nothing.
        """
        others = sum(limit for name, limit in self.stages.items() if name not in names)
        deadline_ms, rate_hz = self.frame.deadline_ms, self.frame.rate_hz
        whole_ms, whole = min(
            (deadline_ms, f"the frame's deadline of {deadline_ms:g} ms"),
            (1e3 / rate_hz, f"the {1e3 / rate_hz:.3g} ms between frames at {rate_hz:g} Hz"),
        )
        left_ms = whole_ms - others
        if left_ms <= 0:
            raise InputError(
                f"the stages other than {', '.join(names)} have budgets of {others:g} ms",
                f"less than {whole}",
            )
        return replace(
            self,
            frame=replace(self.frame, deadline_ms=left_ms),
            stages={name: limit for name, limit in self.stages.items() if name in names},
            heads={},
        )

    def for_mode(self, name: str) -> "Budget":
        """Returns the budget of a driving mode: contracts of heads that are off do not count.

        Raises:
            InputError: there is no mode of that name.
        """
        if name not in self.modes:
            known = ", ".join(self.modes) or "none; add [modes.NAME] with heads to the budget"
            raise InputError(f"there is no mode '{name}'", known, name_nearest(name, self.modes))
        on = self.modes[name]
        return replace(self, heads={head: self.heads[head] for head in self.heads if head in on})

    def tier(self, name: str) -> Tier:
        """Returns a tier by its name.

        Raises:
            InputError: there is none of that name.
        """
        if name not in self.tiers:
            raise InputError(
                f"there is no tier '{name}'", ", ".join(self.tiers), name_nearest(name, self.tiers)
            )
        return self.tiers[name]


def _parse_frame(source: str, values: Mapping[str, Any]) -> FrameBudget:
    refuse_unknown(source, "frame.", values, set(FrameBudget.__dataclass_fields__))
    checked: dict[str, Any] = {}
    for name, value in values.items():
        key = f"frame.{name}"
        if name == "max_consecutive_misses":
            checked[name] = check_count(source, key, value, low=0)
        elif name == "jitter_floor_ms":
            checked[name] = check_number(source, key, value, unit="ms", high=10_000, zero=True)
        elif name == "rate_hz":
            checked[name] = check_number(source, key, value, unit="Hz", high=10_000, low=0.1)
        elif name == "deadline_ms":
            checked[name] = check_number(source, key, value, unit="ms", high=10_000, low=0.1)
        else:
            checked[name] = check_number(source, key, value, unit="", high=100)
    frame = FrameBudget(**checked)
    if frame.p99_over_p50 <= 1:
        raise InputError(
            f"{source}: frame.p99_over_p50 = {frame.p99_over_p50!r}", "a ratio above 1, such as 1.2"
        )
    return frame


def _parse_head(source: str, key: str, value: Any) -> HeadContract:
    value = check_table(source, key, value)
    refuse_unknown(source, f"{key}.", value, {"metric", "max_drop", "lower_is_better"})
    for name in ("metric", "max_drop"):
        if name not in value:
            raise InputError(f"{source}: [{key}] has no {name}", "both metric and max_drop")
    if not isinstance(value["metric"], str) or not value["metric"]:
        raise InputError(
            f"{source}: {key}.metric = {value['metric']!r}", 'a name in quotes, such as "mAP50"'
        )
    drop = check_number(
        source, f"{key}.max_drop", value["max_drop"], unit="", high=math.inf, zero=True
    )
    direction = value.get("lower_is_better")
    if not isinstance(direction, bool | None):
        raise InputError(f"{source}: {key}.lower_is_better = {direction!r}", "true or false")
    try:
        return HeadContract(metric=value["metric"], max_drop=drop, lower_is_better=direction)
    except InputError as error:
        raise InputError(f"{source}: [{key}]: {error.what}", error.expected) from error


def _parse_modes(
    source: str, values: Mapping[str, Any], contracts: Collection[str]
) -> dict[str, tuple[str, ...]]:
    modes = {}
    for name, value in values.items():
        key = f"modes.{name}"
        refuse_unknown(source, f"{key}.", check_table(source, key, value), {"heads"})
        heads = value.get("heads")
        if not isinstance(heads, list) or not all(isinstance(head, str) for head in heads):
            raise InputError(
                f"{source}: {key}.heads = {heads!r}", 'a list of names, such as ["detection"]'
            )
        if not heads:
            raise InputError(f"{source}: {key}.heads is empty", "at least one head that is on")
        _refuse_misspelt(f"{source}: {key}.heads", heads, contracts)
        modes[name] = tuple(heads)
    return modes


def _refuse_misspelt(where: str, heads: list[str], contracts: Collection[str]) -> None:
    """Refuses a head that is nearly one with a contract: the contract would not be judged."""
    off = [name for name in contracts if name not in heads]
    for head in heads:
        if head not in contracts and (near := name_nearest(head, off, cutoff=_MISSPELT)):
            raise InputError(
                f"{where} has '{head}', without a contract", ", ".join(contracts), near
            )
