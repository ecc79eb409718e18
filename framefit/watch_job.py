"""The work of `framefit watch`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from artifacts.atomic import write_json
from latency_budget.clock import Clock, unix_time_s
from latency_budget.sensors import describe_machine
from latency_budget.watch.prometheus import PrometheusEndpoint
from latency_budget.watch.sources import Source
from latency_budget.watch.watcher import Figures, Watcher

REFRESH_NS = 500_000_000

Show = Callable[[Figures, Source], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How watching ended.

    Attributes:
        figures: at the end.
        overrun_frame: number of the frame that stopped it; None at the end of the stream.
    """

    figures: Figures
    overrun_frame: int | None = None


def watch(
    source: Source,
    watcher: Watcher,
    *,
    clock: Clock,
    show: Show,
    endpoint: PrometheusEndpoint | None = None,
    is_stopping: bool = False,
    snapshot: Path | None = None,
) -> Outcome:
    """Takes frames until the source ends, or at the first overrun where that is asked for.

    Args:
        source: the frames.
        watcher: the statistics.
        clock: for the refresh.
        show: is given the figures twice a second and at the end.
        endpoint: counts along.
        is_stopping: stop at the first missed frame.
        snapshot: JSON file with the last frames, written at that frame.
    """
    shown_ns, overrun = clock.now_ns(), None
    for batch in source.batches():
        for sample in batch:
            is_miss = watcher.add(sample)
            if endpoint is not None:
                endpoint.add(sample, is_miss=is_miss)
            if is_miss and is_stopping:
                overrun = watcher.frames - 1
                break
        now_ns = clock.now_ns()
        if overrun is not None or now_ns - shown_ns >= REFRESH_NS:
            _show(watcher, source, show, endpoint)
            shown_ns = now_ns
        if overrun is not None:
            break
    if overrun is not None and snapshot is not None:
        write_json(
            snapshot,
            {
                **watcher.snapshot(),
                "overrun_frame": overrun,
                "created_s": unix_time_s(),
                "machine": describe_machine(),
            },
        )
    figures = _show(watcher, source, show, endpoint)
    return Outcome(figures=figures, overrun_frame=overrun)


def _show(
    watcher: Watcher, source: Source, show: Show, endpoint: PrometheusEndpoint | None
) -> Figures:
    figures = watcher.figures()
    show(figures, source)
    if endpoint is not None:
        endpoint.show(figures, source)
    return figures
