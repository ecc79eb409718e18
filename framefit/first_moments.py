"""An interrupt while a command is still being imported is told as a later one is.

This is imported before all that takes time. What Python does before it, only Python can tell.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TOLD = "interrupted: what was there before is unchanged"


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Lets SIGINT end the process with a line, where it would raise a KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _leave)
    except ValueError:  # This is not the main thread, which gets the signals.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, _frame: object) -> None:
    sys.stderr.write(f"{TOLD}\n")
    sys.stderr.flush()
    os._exit(128 + number)
