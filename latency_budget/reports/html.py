"""report.html: one self-contained page, readable without a network, a mouse or colours."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from artifacts.atomic import write_text
from latency_budget.report import Report, Variant
from latency_budget.reports import charts
from latency_budget.reports.mix import build_mix, to_script
from latency_budget.reports.roofline_chart import build_roofline
from latency_budget.reports.table import (
    build_rows,
    describe_environment,
    head_metrics,
    head_value,
)
from latency_budget.reports.terminal import describe_gain, headline
from latency_budget.reports.text import (
    SYMBOLS,
    format_change,
    format_ms,
    format_ratio,
    format_size,
    format_value,
    plain,
)

FILE_NAME = "report.html"
_HERE = Path(__file__).parent
_COLOURS = 6


def write(report: Report, folder: Path) -> Path:
    """Writes report.html."""
    path = folder / FILE_NAME
    write_text(path, render(report))
    return path


def render(report: Report) -> str:
    """Returns the page; every text is escaped by jinja2, every drawing is made of numbers."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(ms=format_ms, plain=plain, size=format_size)
    created = datetime.fromtimestamp(report.created_s, UTC)
    page: str = environment.get_template("report.html.j2").render(
        report=report,
        style=Markup(_read("report.css") + _read("why.css")),
        script=Markup(_read("report.js") + _read("mix.js")),
        headline=headline(report).removeprefix(f"{report.verdict.value.upper()}: "),
        gain=describe_gain(report),
        symbols=SYMBOLS,
        environment=describe_environment(report),
        created=created.strftime("%Y-%m-%d %H:%M UTC"),
        rows=build_rows(report),
        **_draw(report),
        **_draw_extras(report),
    )
    return page


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _draw_extras(report: Report) -> dict[str, Any]:
    from markupsafe import Markup

    extras = report.extras
    mix = build_mix(report, extras)
    deadline = report.frame["deadline_ms"]
    times = [point.p99_ms or point.p50_ms or 0.0 for point in extras.history]
    axis = charts.build_axis(0.0, max([deadline * 1.15, *times]))
    return {
        "mix": mix,
        "mix_data": Markup(to_script(mix)) if mix else "",
        "roofline": extras.roofline,
        "chart": build_roofline(extras.roofline) if extras.roofline else None,
        "history": [
            {
                **vars(point),
                "p50_at": axis.place(point.p50_ms) or 0.0,
                "p99_at": axis.place(point.p99_ms) or 0.0,
            }
            for point in extras.history
        ],
        "history_axis": axis,
        "history_deadline": axis.place(deadline),
    }


def _draw(report: Report) -> dict[str, Any]:
    deadline = report.frame["deadline_ms"]
    across = charts.latency_axis(report, from_zero=False)
    upwards = charts.latency_axis(report, from_zero=True)
    stages = charts.waterfall_axis(report)
    return {
        "deadline": deadline,
        "deadline_stages": stages.place(deadline),
        "deadline_across": across.place(deadline),
        "deadline_up": upwards.place(deadline),
        "stage_axis": stages,
        "across": across,
        "upwards": upwards,
        "views": [
            _view(report, index, (stages, across, upwards)) for index in range(len(report.variants))
        ],
    }


def _view(
    report: Report, index: int, axes: tuple[charts.Axis, charts.Axis, charts.Axis]
) -> dict[str, Any]:
    variant, reference = report.variants[index], report.variants[0]
    stages, across, upwards = axes
    details = variant.details
    bound, interval = details["p99_upper_ms"], details["p99_interval_ms"]
    shown = variant.frame_ms["p99"] if bound is None else bound
    return {
        "variant": variant,
        "colour": index % _COLOURS,
        "word": variant.verdict.value if variant.verdict else "",
        "bound": bound,
        "shown": shown,
        "gauge": charts.build_axis(0.0, stages.high).place(shown),
        "bars": charts.build_waterfall(variant, stages),
        "histogram": charts.build_histogram(variant, across),
        "timeline": charts.build_timeline(variant, upwards, report.frame["deadline_ms"]),
        "has_unlisted_misses": variant.frame_ms["misses"] > _count_listed(variant),
        "lanes": charts.build_lanes(variant),
        "p50_at": across.place(variant.frame_ms["p50"]),
        "p99_at": across.place(variant.frame_ms["p99"]),
        "interval": interval,
        "band_from": across.place(interval[0]),
        "band_to": across.place(interval[1]),
        "speedup": _speedup(reference, variant),
        "smaller": format_ratio(float(reference.size_bytes), float(variant.size_bytes)),
        "is_reference": index == 0,
        "heads": _heads(report, variant),
        "overload": _describe_overload(report, variant),
    }


def _describe_overload(report: Report, variant: Variant) -> str:
    """Says why latencies grow without end; empty where the frame fits the camera's period."""
    service, period = variant.details["service_ms"]["p50"], 1e3 / report.frame["rate_hz"]
    if not service or service <= period:
        return ""
    consequence = {
        "fifo": "so its queue grows for as long as it runs",
        "latest": "so frames must be dropped",
    }.get(variant.details["mode"], "so it cannot keep up")
    return (
        f"Needs {format_ms(service, 1)} ms per frame where one comes every "
        f"{format_ms(period, 1)} ms, {consequence}."
    )


def _count_listed(variant: Variant) -> int:
    """Returns how many missed frames the report explains one by one."""
    return len((variant.details.get("missed") or {"frames": []})["frames"])


def _speedup(reference: Variant, variant: Variant) -> str:
    before = (reference.network_ms or reference.frame_ms)["p50"]
    after = (variant.network_ms or variant.frame_ms)["p50"]
    return format_ratio(before, after)


def _heads(report: Report, variant: Variant) -> list[dict[str, str]]:
    reference = report.variants[0]
    return [
        {
            "head": head,
            "metric": metric,
            "value": format_value(head_value(variant, head, metric)),
            "change": ""
            if variant is reference
            else format_change(
                head_value(reference, head, metric), head_value(variant, head, metric)
            ),
        }
        for head, metric in head_metrics(report)
    ]
