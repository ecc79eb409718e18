"""Keeps matrix products of numpy and scipy from waiting for processors that others use.

OpenBLAS splits a product among as many threads as there are processors, and these wait for each
other without sleeping. Where another process has one of the processors, each of the thousands of
small products here so takes a time slice: with both of two processors in use elsewhere, a diagnosis
took 200 s instead of 65 s, five sixths of it spent on waiting.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

from compress.quantize.side_by_side import MOST_WORKERS, threads_each

_shared: list[ExitStack] = []
_import_lock = Lock()


@contextmanager
def share_blas() -> Iterator[None]:
    """Leaves at most as many threads to a product as `map_ahead` leaves to a sample."""
    with ExitStack() as stack:
        stack.enter_context(_limit_threads())
        _shared.append(stack)
        try:
            yield
        finally:
            _shared.remove(stack)


def import_linalg() -> Any:
    """Returns scipy.linalg; its BLAS, a library of its own, is shared as numpy's is.

    The import takes longer than small networks' systems, so that it is not one of a module's.
    """
    with _import_lock:
        is_new = "scipy.linalg" not in sys.modules
        from scipy import linalg

        if is_new and _shared:
            _shared[0].enter_context(_limit_threads())
    return linalg


def _limit_threads() -> AbstractContextManager[Any]:
    libraries = ThreadpoolController().select(user_api="blas")
    threads = [library["num_threads"] for library in libraries.info()]
    limiter: AbstractContextManager[Any] = libraries.limit(
        limits=min([threads_each(MOST_WORKERS), *threads])
    )
    return limiter
