"""Geometry of the report's charts, as percentages and SVG paths; no names, no markup.

Paths live in a box of 1000 x 100 units that the page stretches, so lines keep their width and the
labels beside them stay text of the page's own size.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latency_budget.report import Report, Variant
from latency_budget.run import DROPPED_NS

BOX_WIDTH, BOX_HEIGHT = 1000.0, 100.0
BINS = 96
COLUMNS = 400
_SHARE_IN_VIEW = 0.998
MOST_DEADLINES = 3.0


@dataclass(frozen=True)
class Axis:
    """A linear axis in milliseconds.

    Attributes:
        low: value at 0 %.
        high: value at 100 %.
        ticks: (value as text, position in %).
    """

    low: float
    high: float
    ticks: tuple[tuple[str, float], ...]

    def place(self, value_ms: float | None) -> float | None:
        """Returns a value's position in %, clipped to the axis; None stays None."""
        if value_ms is None:
            return None
        return round(min(1.0, max(0.0, self.share(value_ms))) * 100, 3)

    def share(self, value_ms: float) -> float:
        """Returns a value's position as a share of the axis, unclipped."""
        return (value_ms - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Bar:
    """One row of a waterfall, in % of the axis; stacked on the medians of the rows before.

    Attributes:
        name: the stage, or "frame" for the whole.
        start: where it begins.
        p50_width: width of the median.
        tail_width: from the median to P99.
        budget_at: end of the stage's budget, None without one.
        p50, p99, budget_ms: the figures.
        is_total: True for the whole frame.
    """

    name: str
    start: float
    p50_width: float
    tail_width: float
    budget_at: float | None
    p50: float | None
    p99: float | None
    budget_ms: float | None
    is_total: bool


@dataclass(frozen=True)
class Histogram:
    """A variant's latencies.

    Attributes:
        linear: area path with counts.
        logarithmic: area path with log(1 + count).
        beyond: frames right of the axis, dropped ones included.
        largest: frames in the fullest bin.
    """

    linear: str
    logarithmic: str
    beyond: int
    largest: int


@dataclass(frozen=True)
class Timeline:
    """A variant's latencies over the frames.

    Attributes:
        band: area from the smallest to the largest latency of each column.
        middle: line through the columns' medians.
        misses: positions in % of columns with a miss, and how many missed there.
        count: frames shown.
    """

    band: str
    middle: str
    misses: tuple[tuple[float, int], ...]
    count: int


@dataclass(frozen=True)
class Lane:
    """The missed frames of one cause.

    Attributes:
        kind: the cause.
        count: missed frames with it.
        marks: position in % and words of the frames that are listed, one per column.
    """

    kind: str
    count: int
    marks: tuple[tuple[float, str], ...]


def latency_ms(variant: Variant) -> NDArray[np.float64]:
    """Returns [n] frame latencies in milliseconds, infinity for dropped frames."""
    latency = variant.run.latency_ns
    return np.where(latency == DROPPED_NS, np.inf, latency / 1e6)


def build_axis(low: float, high: float, wanted: int = 5) -> Axis:
    """Returns an axis with about `wanted` round ticks."""
    high = high if high > low else low + 1
    raw = (high - low) / max(1, wanted)
    magnitude = 10 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    values = [index * step for index in range(first, int(high / step + 1e-9) + 1)]
    scale = high - low
    ticks = tuple((f"{value:g}", round((value - low) / scale * 100, 3)) for value in values)
    return Axis(low, high, ticks)


def latency_axis(report: Report, *, from_zero: bool) -> Axis:
    """Returns one axis for all variants that shows the deadline and nearly all frames."""
    deadline = report.frame["deadline_ms"]
    parts = [latency_ms(variant) for variant in report.variants]
    finite = np.concatenate([part[np.isfinite(part)] for part in parts])
    if not len(finite):
        return build_axis(0.0, deadline * 1.2)
    tall = max(
        float(np.quantile(part[np.isfinite(part)], _SHARE_IN_VIEW, method="inverted_cdf"))
        for part in parts
        if np.isfinite(part).any()
    )
    high = max(deadline * 1.15, min(tall * 1.08, deadline * MOST_DEADLINES))
    low = 0.0 if from_zero else min(float(finite.min()) * 0.95, deadline * 0.9)
    return build_axis(max(0.0, low), high)


def build_waterfall(variant: Variant, axis: Axis) -> list[Bar]:
    """Returns a row per stage, then the whole frame, and its wait where that matters."""
    bars, start = [], 0.0
    for stage in variant.stages:
        bars.append(_bar(str(stage["name"]), start, stage, axis, is_total=False))
        start += stage["p50"] or 0.0
    frame = variant.frame_ms | {"budget_ms": None}
    service = variant.details["service_ms"] | {"budget_ms": None}
    if is_waiting(variant):
        if len(bars) > 1:
            bars.append(_bar("all stages", 0.0, service, axis, is_total=True))
        bars.append(_bar("with its wait", 0.0, frame, axis, is_total=True))
    elif len(bars) != 1:
        bars.append(_bar("whole frame", 0.0, frame, axis, is_total=True))
    return bars


def is_waiting(variant: Variant) -> bool:
    """Returns True where frames wait long for their turn (by more than 5 % of their median)."""
    service, frame = variant.details["service_ms"]["p50"], variant.frame_ms["p50"]
    return bool(service and frame and frame > 1.05 * service)


def waterfall_axis(report: Report) -> Axis:
    """Returns one axis from zero for all variants' waterfalls."""
    deadline = report.frame["deadline_ms"]
    ends = [deadline * 1.12]
    for variant in report.variants:
        whole = variant.details["service_ms"] if is_waiting(variant) else variant.frame_ms
        ends.append((whole["p99"] or whole["max"] or 0.0) * 1.03)
        start = 0.0
        for stage in variant.stages:
            ends.append((start + (stage["p99"] or stage["p50"] or 0.0)) * 1.03)
            start += stage["p50"] or 0.0
    return build_axis(0.0, min(max(ends), deadline * MOST_DEADLINES))


def build_histogram(variant: Variant, axis: Axis) -> Histogram:
    """Returns the latencies in 96 bins between the axis's ends."""
    values = latency_ms(variant)
    counts, _ = np.histogram(values[np.isfinite(values)], bins=BINS, range=(axis.low, axis.high))
    return Histogram(
        linear=_steps(counts.astype(np.float64)),
        logarithmic=_steps(np.log1p(counts)),
        beyond=int((values > axis.high).sum()),
        largest=int(counts.max()),
    )


def build_timeline(variant: Variant, axis: Axis, deadline_ms: float) -> Timeline:
    """Returns the run in at most 400 columns; a column with any miss shows it."""
    values = latency_ms(variant)
    columns = np.array_split(values, min(COLUMNS, max(1, len(values))))
    top, bottom, middle, misses = [], [], [], []
    for index, column in enumerate(columns):
        x = (index + 0.5) / len(columns) * BOX_WIDTH
        missed = int((column > deadline_ms).sum())
        if missed:
            misses.append((round(x / BOX_WIDTH * 100, 3), missed))
        shown = column[np.isfinite(column)]
        if not len(shown):
            continue
        top.append(_point(x, axis, float(shown.max())))
        bottom.append(_point(x, axis, float(shown.min())))
        middle.append(_point(x, axis, float(np.median(shown))))
    band = f"M{' L'.join(top + bottom[::-1])}Z" if top else ""
    return Timeline(band, f"M{' L'.join(middle)}" if middle else "", tuple(misses), len(values))


def build_lanes(variant: Variant) -> list[Lane]:
    """Returns the listed missed frames by their first cause, the most frequent cause first."""
    missed = variant.details.get("missed") or {"frames": [], "by_cause": {}}
    count = max(1, variant.run.count)
    columns = min(COLUMNS, count)
    marks: dict[str, dict[float, str]] = {kind: {} for kind in missed["by_cause"]}
    for frame in missed["frames"]:
        column = int(frame["frame"] * columns / count)
        title = f"frame {frame['frame']}, {frame['stage']}: {'; '.join(frame['causes'])}"
        marks[frame["kind"]].setdefault(round((column + 0.5) / columns * 100, 3), title)
    return [
        Lane(kind, missed["by_cause"][kind], tuple(found.items())) for kind, found in marks.items()
    ]


def _bar(name: str, start: float, figures: dict[str, float], axis: Axis, *, is_total: bool) -> Bar:
    p50, p99, budget = figures["p50"], figures["p99"], figures["budget_ms"]
    begin = axis.place(start) or 0.0
    middle = axis.place(start + (p50 or 0.0)) or 0.0
    end = axis.place(start + (p99 or p50 or 0.0)) or 0.0
    return Bar(
        name=name,
        start=begin,
        p50_width=round(middle - begin, 3),
        tail_width=round(max(0.0, end - middle), 3),
        budget_at=axis.place(start + budget) if budget else None,
        p50=p50,
        p99=p99,
        budget_ms=budget,
        is_total=is_total,
    )


def _steps(heights: NDArray[np.float64]) -> str:
    """An area path with one flat step per bin; empty where every bin is empty."""
    largest = float(heights.max())
    if largest <= 0:
        return ""
    width = BOX_WIDTH / len(heights)
    parts = [f"M0 {BOX_HEIGHT:g}"]
    for index, height in enumerate(heights):
        y = BOX_HEIGHT - 96 * height / largest
        parts.append(f"L{index * width:.1f} {y:.1f} L{(index + 1) * width:.1f} {y:.1f}")
    return " ".join([*parts, f"L{BOX_WIDTH:g} {BOX_HEIGHT:g}Z"])


def _point(x: float, axis: Axis, value_ms: float) -> str:
    share = min(1.0, max(0.0, axis.share(value_ms)))
    return f"{x:.1f} {BOX_HEIGHT * (1 - share):.2f}"
