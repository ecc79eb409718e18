"""Reads a DataLoader whose worker processes leave nothing behind and may die."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from artifacts.errors import UnavailableError

Batch = TypeVar("Batch")


def read_batches(loader: Iterable[Batch]) -> Iterator[Batch]:
    """Yields what a torch DataLoader yields.

    Raises:
        UnavailableError: a worker process died. It is noticed within seconds, while its next
            batch is waited for.
    """
    with _own_child_signal():
        batches = iter(loader)
    try:
        yield from batches
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith("DataLoader worker"):
            raise
        raise UnavailableError(
            f"a process that loads pictures died: {error}",
            "memory and shared memory (/dev/shm) for it",
            "free some, or load with fewer workers",
        ) from error


@contextmanager
def _own_child_signal() -> Iterator[None]:
    """Takes torch's handler of ended child processes back after the block, which starts workers.

    DataLoader leaves it behind for good; a process that later ran OpenVINO and then any child
    crashed in it (torch 2.15, Python 3.11).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)
