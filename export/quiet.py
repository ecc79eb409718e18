"""Keeps a library's chatter away from the user."""

import contextlib
import ctypes
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

_STDOUT = 1


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Swallows what the block prints, warns and logs; exceptions pass.

    Yields:
        the text that Python code wrote, for an error message.
    """
    heard = io.StringIO()
    disabled = logging.root.manager.disable
    with (
        _without_native_output(),
        contextlib.redirect_stdout(heard),
        contextlib.redirect_stderr(heard),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield heard
        finally:
            logging.disable(disabled)


@contextlib.contextmanager
def _without_native_output() -> Iterator[None]:
    """Drops what compiled code writes to the process's standard output during the block.

    PyTorch's tracing exporter prints the whole graph there when it fails, in the middle of a
    result that another program may read. Standard error stays, for the last words of a crash.
    """
    _flush()
    try:
        kept = os.dup(_STDOUT)
    except OSError:
        yield
        return
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), _STDOUT)
        yield
    finally:
        _flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _flush() -> None:
    """Writes out what Python and C still hold, so that it goes where it was meant to."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
