"""What a report may show besides its judged variants: alternatives, a roofline, a history."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from artifacts.errors import InputError
from latency_budget.run import Nanoseconds
from latency_budget.statistics import percentile_ns

QUANTILES = 200
WHOLE_FRAME = "frame"
"""The stage of an option that is a whole frame, measured with these settings in one run."""


@dataclass(frozen=True, kw_only=True)
class StageOption:
    """One measured way to run one stage, for the report's toggles.

    Attributes:
        stage: the stage, or `WHOLE_FRAME`.
        settings: what was set, such as {"precision": "INT8", "backbone": "shared", "depth": "on"}.
        p50_ms: nearest-rank median.
        p99_ms: nearest rank; None with fewer than 100 samples.
        n: samples.
        quantiles_ms: [200] nearest-rank quantiles at (i + 0.5) / 200.
    """

    stage: str
    settings: Mapping[str, str]
    p50_ms: float
    p99_ms: float | None
    n: int
    quantiles_ms: tuple[float, ...] = field(repr=False)

    @classmethod
    def from_samples(
        cls, stage: str, settings: Mapping[str, str], samples_ns: Nanoseconds
    ) -> "StageOption":
        """Summarises durations in nanoseconds.

        Raises:
            InputError: there are no samples.
        """
        ordered = np.sort(np.asarray(samples_ns, np.int64))
        if not len(ordered):
            raise InputError(f"stage '{stage}' has no samples", "at least one duration")
        ranks = (2 * np.arange(QUANTILES) + 1) * len(ordered) // (2 * QUANTILES)
        p99 = percentile_ns(ordered, 0.99)
        return cls(
            stage=stage,
            settings=dict(settings),
            p50_ms=round(int(ordered[(len(ordered) - 1) // 2]) / 1e6, 4),
            p99_ms=None if p99 is None else round(p99 / 1e6, 4),
            n=len(ordered),
            quantiles_ms=tuple(round(int(value) / 1e6, 4) for value in ordered[ranks]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns it for a JSON file; `from_dict` reads it again."""
        return {
            "stage": self.stage,
            "settings": dict(self.settings),
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "n": self.n,
            "quantiles_ms": list(self.quantiles_ms),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "StageOption":
        """Reads what `to_dict` wrote.

        Raises:
            InputError: a value is missing or of the wrong kind.
        """
        try:
            quantiles = tuple(float(value) for value in values["quantiles_ms"])
            p99 = values["p99_ms"]
            option = cls(
                stage=str(values["stage"]),
                settings={str(key): str(value) for key, value in values["settings"].items()},
                p50_ms=float(values["p50_ms"]),
                p99_ms=None if p99 is None else float(p99),
                n=int(values["n"]),
                quantiles_ms=quantiles,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(
                f"an option of a stage is not whole: {error!r}",
                "stage, settings, p50_ms, p99_ms, n, quantiles_ms",
            ) from error
        if len(quantiles) != QUANTILES or not np.isfinite(quantiles).all():
            raise InputError(f"an option of '{option.stage}' has no {QUANTILES} finite quantiles")
        return option


@dataclass(frozen=True, kw_only=True)
class HistoryPoint:
    """One earlier verdict.

    Attributes:
        label: such as a short commit.
        p50_ms: frame P50; None where there was none.
        p99_ms: frame P99; None with too few frames.
        verdict: its word.
        created_s: Unix time.
    """

    label: str
    p50_ms: float | None
    p99_ms: float | None
    verdict: str
    created_s: int = 0


@dataclass(frozen=True, kw_only=True)
class RooflinePoint:
    """One executed layer under the roofline.

    Attributes:
        name: the layer.
        owner: the trunk or a head.
        precision: "int8", "fp16" or "fp32".
        intensity: operations per byte.
        operations_per_s: as measured.
        ms: its measured time.
    """

    name: str
    owner: str
    precision: str
    intensity: float
    operations_per_s: float
    ms: float


@dataclass(frozen=True, kw_only=True)
class RooflineView:
    """What the roofline plot shows.

    Attributes:
        machine: the device.
        peaks: operations per second by precision.
        bandwidth: bytes per second.
        points: the layers.
        wall: what bounds the network.
        advice: what moves that wall.
        predictions: `Prediction.to_dict()` of other devices; predicted, never measured.
        owners_ms: measured time per owner.
        network: the network's file.
        runs: profiled inferences.
    """

    machine: str
    peaks: Mapping[str, float]
    bandwidth: float
    points: tuple[RooflinePoint, ...]
    wall: str
    advice: tuple[str, ...] = ()
    predictions: tuple[Mapping[str, Any], ...] = ()
    owners_ms: Mapping[str, float] = field(default_factory=dict)
    network: str = ""
    runs: int = 0


@dataclass(frozen=True, kw_only=True)
class ReportExtras:
    """Everything that a report shows besides its variants; each part may be missing.

    Attributes:
        options: measured alternatives per stage.
        roofline: the network under its roofline.
        history: earlier verdicts, the oldest first.
    """

    options: tuple[StageOption, ...] = ()
    roofline: RooflineView | None = None
    history: tuple[HistoryPoint, ...] = ()
