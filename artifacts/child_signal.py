"""Gives back the signal handler that torch's DataLoader leaves behind."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_child_signal() -> Iterator[None]:
    """Takes torch's handler of ended child processes back when its workers are done.

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
