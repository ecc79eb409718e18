"""Geometry of the roofline plot: a logarithmic square of operations per byte and per second."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from latency_budget.report_extras import RooflinePoint, RooflineView

WIDTH, HEIGHT = 1000.0, 420.0
SLOWEST = 10
_SHAPES = ("circle", "square", "triangle", "diamond", "cross")


@dataclass(frozen=True)
class Dot:
    """One layer: position in the box, radius, shape and words."""

    x: float
    y: float
    radius: float
    shape: str
    colour: int
    title: str


@dataclass(frozen=True)
class RooflineChart:
    """The plot.

    Attributes:
        roofs: (precision, path, label x, label y) of each roof.
        dots: the layers, the slowest drawn last.
        owners: (name, shape, colour) for the legend.
        x_ticks, y_ticks: (text, position).
        shares: (owner, ms, % of the time, colour), the slowest owner first.
        slowest: the ten layers that take most time, with the % of its roof that each reaches; None
            where the roof of its precision is not known.
    """

    roofs: tuple[tuple[str, str, float, float], ...]
    dots: tuple[Dot, ...]
    owners: tuple[tuple[str, str, int], ...]
    x_ticks: tuple[tuple[str, float], ...]
    y_ticks: tuple[tuple[str, float], ...]
    shares: tuple[tuple[str, float, float, int], ...]
    slowest: tuple[tuple[RooflinePoint, float | None], ...]


def build_roofline(view: RooflineView) -> RooflineChart:
    """Returns the plot's geometry; its axes span whole decades."""
    points = [p for p in view.points if p.intensity > 0 and p.operations_per_s > 0]
    crossovers = [peak / view.bandwidth for peak in view.peaks.values()]
    low_x, high_x = _decades([p.intensity for p in points] + crossovers)
    low_y, high_y = _decades([p.operations_per_s for p in points] + list(view.peaks.values()))

    def place(intensity: float, speed: float) -> tuple[float, float]:
        x = (math.log10(intensity) - low_x) / (high_x - low_x) * WIDTH
        y = HEIGHT - (math.log10(speed) - low_y) / (high_y - low_y) * HEIGHT
        return round(x, 1), round(min(HEIGHT, max(0.0, y)), 1)

    owners = tuple(
        (owner, _SHAPES[index % len(_SHAPES)], index % 6)
        for index, owner in enumerate(dict.fromkeys(p.owner for p in points))
    )
    look = {owner: (shape, colour) for owner, shape, colour in owners}
    longest = max((p.ms for p in points), default=1.0) or 1.0
    dots = tuple(
        Dot(
            *place(point.intensity, point.operations_per_s),
            radius=round(4 + 10 * math.sqrt(point.ms / longest), 1),
            shape=look[point.owner][0],
            colour=look[point.owner][1],
            title=f"{point.name} ({point.owner}, {point.precision}): {point.ms:.3f} ms, "
            f"{point.intensity:.2g} ops/B, {point.operations_per_s / 1e9:.3g} GOP/s",
        )
        for point in sorted(points, key=lambda point: point.ms)
    )
    return RooflineChart(
        roofs=_roofs(view, place, (10**low_x, 10**high_x, 10**low_y)),
        dots=dots,
        owners=owners,
        x_ticks=_ticks(low_x, high_x, 1.0),
        y_ticks=_ticks(low_y, high_y, 1e9),
        shares=_shares(view, {owner: colour for owner, _, colour in owners}),
        slowest=tuple(
            (point, _share_of_roof(point, view))
            for point in sorted(view.points, key=lambda point: -point.ms)[:SLOWEST]
        ),
    )


def _roofs(
    view: RooflineView,
    place: Callable[[float, float], tuple[float, float]],
    limits: tuple[float, float, float],
) -> tuple[tuple[str, str, float, float], ...]:
    lowest, highest, slowest = limits
    roofs = []
    for precision, peak in view.peaks.items():
        start = max(lowest, slowest / view.bandwidth)
        bend = peak / view.bandwidth
        path = [place(start, start * view.bandwidth), place(bend, peak), place(highest, peak)]
        text = " L".join(f"{x} {y}" for x, y in path)
        roofs.append((precision, f"M{text}", *path[1]))
    return tuple(roofs)


def _shares(
    view: RooflineView, colours: Mapping[str, int]
) -> tuple[tuple[str, float, float, int], ...]:
    total = sum(view.owners_ms.values()) or 1.0
    return tuple(
        (owner, ms, round(ms / total * 100, 2), colours.get(owner, 5))
        for owner, ms in sorted(view.owners_ms.items(), key=lambda item: -item[1])
    )


def _share_of_roof(point: RooflinePoint, view: RooflineView) -> float | None:
    peak = view.peaks.get(point.precision)
    if peak is None:
        return None
    return point.operations_per_s / min(peak, point.intensity * view.bandwidth) * 100


def _decades(values: list[float]) -> tuple[int, int]:
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    return (low, high) if high > low else (low, low + 1)


def _ticks(low: int, high: int, unit: float) -> tuple[tuple[str, float], ...]:
    return tuple(
        (f"{10.0**power / unit:g}", round((power - low) / (high - low) * 100, 2))
        for power in range(low, high + 1)
    )
