"""One stage of the frame: a name and the function that does its work."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
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
                raise InputError(
                    f"stage '{stage.name}' is {kind}, whose work is not done when it returns",
                    "a function that returns its result",
                    "call it to its end in a function of its own",
                )


_LATE: dict[str, Callable[[object], bool]] = {
    "a coroutine function": inspect.iscoroutinefunction,
    "a generator function": inspect.isgeneratorfunction,
    "an asynchronous generator function": inspect.isasyncgenfunction,
}
