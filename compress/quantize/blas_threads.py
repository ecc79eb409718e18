"""Keeps numpy's matrix products from waiting for processors that others use.

OpenBLAS splits a product among as many threads as there are processors, and these wait for each
other without sleeping. Where another process has one of the processors, each of the thousands of
small products here so takes a time slice: with both of two processors in use elsewhere, a diagnosis
took 200 s instead of 65 s, five sixths of it spent on waiting.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from compress.quantize.side_by_side import MOST_WORKERS, threads_each

_PREFIXES = ("scipy_openblas", "openblas")
_SUFFIXES = ("64_", "")


@contextmanager
def share_blas() -> Iterator[None]:
    """Leaves one thread to a product for each that `map_ahead` leaves to a sample.

    Without OpenBLAS, as where numpy was built with another library, nothing is changed.
    """
    found = _find_openblas()
    if found is None:
        yield
        return
    read, write = found
    before = read()
    write(min(before, threads_each(MOST_WORKERS)))
    try:
        yield
    finally:
        write(before)


@cache
def _find_openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Returns what reads and writes the number of threads of the library in numpy's wheel."""
    package = Path(np.__file__).parent
    folders = (package.parent / "numpy.libs", package / ".dylibs")
    for path in sorted(path for folder in folders for path in folder.glob("*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for prefix in _PREFIXES:
            for suffix in _SUFFIXES:
                read = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                write = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                if read is not None and write is not None:
                    return read, write
    return None
