"""One stage of the frame: a name and the function that does its work."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from artifacts.errors import InputError

FRAME_NAMES = ("frame", "latency")
"""What reports and columns of samples call the whole frame; no stage can have these names."""


@dataclass(frozen=True)
class Stage:
    """A stage: takes the frame's payload, returns the payload for the next stage.

    Attributes:
        name: unique in the frame; the key under `[stages]` of a budget file.
        run: called once per frame on the timing thread; must return when the work is done (a GPU
            stage synchronizes), or its time is charged to a later stage.
    """

    name: str
    run: Callable[[Any], Any]


def check_stages(stages: list[Stage]) -> tuple[str, ...]:
    """Returns the stages' names.

    Raises:
        InputError: there is no stage, one is not a `Stage`, has no name or nothing to run, or
            returns before its work is done, or two have the same name.
    """
    for stage in stages:
        if not isinstance(stage, Stage):
            raise InputError(
                f"a stage is a {type(stage).__name__}", "latency_budget.Stage(name, function)"
            )
        if not isinstance(stage.name, str) or not stage.name:
            raise InputError(f"a stage's name is {stage.name!r}", "a name in quotes")
        if stage.name in FRAME_NAMES:
            raise InputError(
                f"a stage's name is '{stage.name}', which stands for the whole frame",
                "another name",
            )
        _check_function(stage)
    names = tuple(stage.name for stage in stages)
    if not names:
        raise InputError("there is no stage to measure", "at least one Stage")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the stage name '{name}' is used twice", "a name per stage")
    return names


def _check_function(stage: Stage) -> None:
    """Refuses what returns at once and works later, which would look like a stage without cost."""
    if not callable(stage.run):
        raise InputError(
            f"stage '{stage.name}' is to run a {type(stage.run).__name__}", "a function"
        )
    for function in (stage.run, type(stage.run).__call__):
        for kind, is_kind in _LATE.items():
            if is_kind(function):
                raise _late(f"stage '{stage.name}' is {kind}")


def refuse_late_results(stages: list[Stage]) -> list[Stage]:
    """Returns the stages, each of which raises where it returns before its work is done.

    What a stage returns is known only once it runs, and looking at it costs about a microsecond. So
    this is for frames that are not judged: the first ones and the warm-up.

    Raises:
        InputError: when a stage runs and returns a Future, a coroutine or the like, alone or in a
            tuple, list or dict.
    """
    known: dict[type, bool] = {}
    return [replace(stage, run=partial(_run_to_its_end, stage, known)) for stage in stages]


def _run_to_its_end(stage: Stage, known: dict[type, bool], payload: Any) -> Any:
    result = stage.run(payload)
    parts: Iterable[Any] = ()
    if isinstance(result, tuple | list):
        parts = result[:_LOOKED_AT]
    elif isinstance(result, dict):
        parts = islice(result.values(), _LOOKED_AT)
    for part in (result, *parts):
        kind = type(part)
        if kind not in known:
            known[kind] = _is_late(kind)
        if known[kind]:
            raise _late(f"stage '{stage.name}' returns a {kind.__name__}")
    return result


def _is_late(kind: type) -> bool:
    """Goes by what can be done with a result: each library has Futures of its own."""
    return issubclass(kind, _LATE_RESULTS) or any(
        all(hasattr(kind, name) for name in names) for names in _LATE_METHODS
    )


def _late(what: str) -> InputError:
    return InputError(
        f"{what}, whose work is not done when it returns",
        "a function that returns its result",
        "call it to its end in a function of its own",
    )


_LOOKED_AT = 16
"""Parts of a result: one for each head, not each of a thousand boxes."""

_LATE_RESULTS = (Awaitable, GeneratorType, AsyncGeneratorType, map, filter)
_LATE_METHODS = (
    ("add_done_callback", "result"),  # concurrent.futures, dask
    ("add_done_callback", "wait"),  # torch.futures
    ("ready", "successful"),  # multiprocessing.pool
    ("is_alive", "join"),  # a thread or a process
)


_LATE: dict[str, Callable[[object], bool]] = {
    "a coroutine function": inspect.iscoroutinefunction,
    "a generator function": inspect.isgeneratorfunction,
    "an asynchronous generator function": inspect.isasyncgenfunction,
}
