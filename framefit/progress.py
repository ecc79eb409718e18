"""Progress of long work on stderr: a bar for people, a line now and then for logs."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Update = Callable[[str, int, int], None]
EACH_S = 30.0
"""From one line in a log to the next."""


@contextmanager
def show_progress() -> Iterator[Update]:
    """Yields a function to call with (what, done, total).

    It draws a bar on a terminal, and elsewhere writes a line every half a minute: a CI job that
    says nothing looks hung. Both happen when the function is called and never by a thread of its
    own, which would disturb whatever is being timed.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with _draw_bars(console) as update:
            yield update
    else:
        yield write_lines()


def write_lines() -> Update:
    """Returns a function that writes what it is told to stderr, once in `EACH_S`."""
    started = last = time.monotonic()

    def update(what: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < EACH_S:
            return
        last = now
        sys.stderr.write(f"after {now - started:.0f} s: {what} {done}/{total}\n")
        sys.stderr.flush()

    return update


@contextmanager
def _draw_bars(console: "Console") -> Iterator[Update]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        auto_refresh=False,
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def update(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total, refresh=True)

        yield update
