"""Progress of long work on stderr, shown only to people."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def show_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yields a function to call with (what, done, total); it draws a bar on a terminal.

    The bar is drawn when the function is called and never by a thread of its own, which would
    disturb whatever is being timed.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        auto_refresh=False,
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def update(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total, refresh=True)

        yield update
