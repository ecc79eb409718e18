"""`framefit watch`: the statistics of a pipeline that is running."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framefit.commands.options import JsonOption

if TYPE_CHECKING:
    from latency_budget.budget import Budget
    from latency_budget.watch.sources import Source
    from latency_budget.watch.watcher import Figures


def watch(
    budget: Annotated[
        Path, typer.Option("--budget", help="The budget file, see examples/budget.toml.")
    ],
    source: Annotated[
        str, typer.Argument(help="A .jsonl file, a ring file, or - for standard input.")
    ] = "-",
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more at the file's end.")
    ] = True,
    window: Annotated[
        int, typer.Option(min=100, help="Frames that the percentiles are of.")
    ] = 3000,
    stop_on_overrun: Annotated[
        bool, typer.Option("--stop-on-overrun", help="End at the first missed frame, with code 1.")
    ] = False,
    snapshot: Annotated[
        Path | None, typer.Option(help="JSON file for the last frames at that moment.")
    ] = None,
    prometheus: Annotated[
        int | None, typer.Option(help="Port of a Prometheus endpoint; 0 takes a free one.")
    ] = None,
    address: Annotated[str, typer.Option(help="Interface of that endpoint.")] = "127.0.0.1",
    json_file: JsonOption = None,
) -> None:
    """Watch a running pipeline: frames as JSON lines or from a ring file, statistics live.

    Exit codes: 0 the stream ended, 1 stopped at an overrun, 2 bad input, 130 Ctrl-C.
    """
    from artifacts.atomic import write_json
    from artifacts.errors import InputError
    from framefit.watch_job import watch as run_watch
    from latency_budget.budget import Budget
    from latency_budget.clock import MonotonicClock
    from latency_budget.watch.prometheus import PrometheusEndpoint
    from latency_budget.watch.sources import open_source
    from latency_budget.watch.watcher import Watcher

    limits = Budget.load(budget)
    with ExitStack() as stack:
        frames = open_source(source, follow=follow)
        stack.callback(frames.close)
        endpoint = None
        if prometheus is not None:
            endpoint = PrometheusEndpoint(limits.frame.deadline_ns / 1e6, prometheus, address)
            stack.callback(endpoint.close)
            typer.echo(f"metrics on http://{address}:{endpoint.port}/metrics", err=True)
        watcher = Watcher(limits, window)
        try:
            outcome = run_watch(
                frames,
                watcher,
                clock=MonotonicClock(),
                show=stack.enter_context(_live(limits)),
                endpoint=endpoint,
                is_stopping=stop_on_overrun,
                snapshot=snapshot,
            )
        finally:  # Ctrl-C is how a file that is followed ends.
            figures = watcher.figures()
            typer.echo(_describe(figures, frames))
            if json_file is not None:
                write_json(json_file, {**figures.to_dict(), **frames.to_dict()})
    if frames.unreadable and not figures.frames:
        raise InputError(
            f"none of {frames.unreadable} {frames.unit}s is a frame",
            'a line such as {"latency_ms": 24.8} per frame',
            "judge a .csv that is complete with budget-check --samples",
        )
    if outcome.overrun_frame is not None:
        typer.echo(f"stopped at frame {outcome.overrun_frame}, the first over its deadline")
        raise typer.Exit(1)


def _live(budget: "Budget") -> Any:
    """Returns a context that yields a function which draws the figures on a terminal's stderr."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.live import Live

    @contextmanager
    def live() -> Any:
        console = Console(stderr=True)
        if not console.is_terminal:
            yield lambda figures, source: None
            return
        with Live(console=console, auto_refresh=False, transient=True) as screen:
            yield lambda figures, source: screen.update(
                _table(figures, source, budget), refresh=True
            )

    return live()


def _table(figures: "Figures", source: "Source", budget: "Budget") -> Any:
    from rich.table import Table
    from rich.text import Text

    from latency_budget.reports.text import format_ms, plain

    deadline_ms = budget.frame.deadline_ns / 1e6
    table = Table(title=_describe(figures, source), title_justify="left", box=None)
    for name in ("", "P50 ms", "P99 ms", "budget ms"):
        table.add_column(name, justify="left" if not name else "right")
    rows = [("frame", (figures.p50_ms, figures.p99_ms), deadline_ms)]
    rows += [(name, pair, budget.stages.get(name, 0.0)) for name, pair in figures.stages_ms.items()]
    for name, (p50, p99), limit in rows:
        is_over = bool(limit and p99 is not None and p99 > limit)
        style = "bold red" if is_over else ""
        mark = " ▲" if is_over else ""
        table.add_row(
            Text(plain(name)),
            format_ms(p50),
            Text(f"{format_ms(p99)}{mark}", style=style),
            f"{limit:g}" if limit else "–",
        )
    return table


def _describe(figures: "Figures", source: "Source") -> str:
    from artifacts.wording import count_of
    from latency_budget.reports.text import format_ms

    parts = [
        f"{count_of(figures.frames, 'frame')}, {figures.misses} missed ({figures.dropped} dropped)",
        f"longest run {figures.longest_run}",
        f"last {figures.window}: P50 {format_ms(figures.p50_ms)}, P99 {format_ms(figures.p99_ms)}"
        f" (at most {format_ms(figures.p99_upper_ms)} at 95 %) ms",
    ]
    if source.unreadable:
        parts.append(count_of(source.unreadable, f"unreadable {source.unit}"))
    if source.lost:
        parts.append(f"{count_of(source.lost, 'frame')} lost")
    if source.backward:
        times = count_of(source.backward, "time")
        parts.append(
            f"the frames' numbers did not grow {times} (lines twice or out of order, or a counter "
            "that began anew)"
        )
    return "; ".join(parts)
