"""The stages of one item's work: how long each took, and in which one it stopped."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from artifacts.errors import FramefitError
from benchmarks.own_processes import Row

_MOST_CHARACTERS = 300


@contextmanager
def time_stage(row: Row, name: str) -> Iterator[None]:
    """Notes the stage that runs, and its seconds when it is done."""
    row["stage"] = name
    start = time.perf_counter()
    yield
    row["seconds"][name] = round(time.perf_counter() - start, 2)


@contextmanager
def name_problem(row: Row) -> Iterator[None]:
    """Notes what stops the work, and in which stage; nothing is raised."""
    try:
        yield
    except FramefitError as error:
        row["problem"] = f"{row['stage']}: {error}"
    except Exception as error:
        line = " ".join(str(error).split())[:_MOST_CHARACTERS]
        row["problem"] = f"{row['stage']}: {type(error).__name__}: {line}"
