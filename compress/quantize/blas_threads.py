"""Keeps numpy's matrix products from waiting for processors that others use.

OpenBLAS splits a product among as many threads as there are processors, and these wait for each
other without sleeping. Where another process has one of the processors, each of the thousands of
small products here so takes a time slice: with both of two processors in use elsewhere, a diagnosis
took 200 s instead of 65 s, five sixths of it spent on waiting.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

from compress.quantize.side_by_side import MOST_WORKERS, threads_each


@contextmanager
def share_blas() -> Iterator[None]:
    """Leaves at most as many threads to a product as `map_ahead` leaves to a sample."""
    libraries = ThreadpoolController().select(user_api="blas")
    threads = [library["num_threads"] for library in libraries.info()]
    with libraries.limit(limits=min([threads_each(MOST_WORKERS), *threads])):
        yield
