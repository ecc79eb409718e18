"""Work on several calibration samples at once, in threads.

onnxruntime and numpy let go of the interpreter while they compute. A thread per sample leaves less
idle than all threads on one sample's small steps, and what Python does in between runs beside it.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

MOST_WORKERS = 2
"""Each holds what one sample takes. More processors are shared out among them."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yields the results in the order of the items; few more than are asked for are computed.

    An exception is raised where its result would have been yielded. `work` must not call this.
    """
    workers = _count_workers()
    pool, pending = _open_pool(workers), deque[Future[Result]]()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        wait([future for future in pending if not future.cancel()])


@cache
def _open_pool(workers: int) -> ThreadPoolExecutor:
    """Returns this process's threads: to start some for every layer takes longer than the layer."""
    return ThreadPoolExecutor(workers)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_pool.cache_clear)


def threads_each(items: int) -> int:
    """Returns how many threads a runtime should take for one of `items` in `map_ahead`."""
    return max(1, _count_processors() // min(_count_workers(), max(items, 1)))


def _count_workers() -> int:
    return min(MOST_WORKERS, _count_processors())


def _count_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
