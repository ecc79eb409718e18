"""The user's own frame: `package.module:function`, which returns its stages and its frames."""

import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from artifacts.errors import FramefitError, InputError, first_line
from artifacts.own_packages import modules_of
from latency_budget.stage import Stage, check_stages
from latency_budget.workload import Workload

_EXPECTED = "package.module:function, a function that returns (stages, frames)"


def open_pipeline_workload(
    name: str, model: str | None = None, heads: list[str] | None = None
) -> Workload:
    """Loads the user's frame; the function of a `Recipe`. See `load_pipeline`."""
    stages, frames = load_pipeline(
        name, Path(model) if model else None, None if heads is None else tuple(heads)
    )
    return Workload(stages=stages, frames=frames)


def load_pipeline(
    name: str, model: Path | None = None, heads: tuple[str, ...] | None = None
) -> tuple[list[Stage], Iterable[Any]]:
    """Imports and calls the function that `name` names; the current folder is searched too.

    Args:
        name: `package.module:function`.
        model: passed to the function as its first argument where it is given.
        heads: of a driving mode, passed as the argument `heads` where they are given.

    Returns:
        the stages in order, and the payloads of their first one.

    Raises:
        InputError: there is no such function, or it does not return stages and frames.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise InputError(f"the pipeline is '{name}'", _EXPECTED)
    here = Path.cwd()
    with modules_of(here):
        function = _import_function(name, module_name, function_name)
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    keywords = {} if heads is None else {"heads": _require_heads(name, function, heads)}
    try:
        result = function(model, **keywords) if model is not None else function(**keywords)
    except FramefitError:
        raise
    except (Exception, SystemExit) as error:
        raise _raised(f"the pipeline '{name}'", error) from error
    _check_result(name, result)
    stages = list(result[0])
    check_stages(stages)
    return stages, result[1]


def _raised(what: str, error: BaseException) -> InputError:
    return InputError(
        f"{what} raised {type(error).__name__}: {first_line(error)}",
        fix="try it by itself in Python",
    )


def _require_heads(name: str, function: Any, heads: tuple[str, ...]) -> tuple[str, ...]:
    """A driving mode that the frame cannot take would be measured with every head on."""
    if "heads" not in inspect.signature(function).parameters:
        raise InputError(
            f"the pipeline '{name}' takes no 'heads'",
            "a function with the argument heads, the names of those that are on",
            "or measure without --mode",
        )
    return heads


def _import_function(name: str, module_name: str, function_name: str) -> Any:
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ImportError as error:
        raise InputError(
            f"cannot import the pipeline '{name}': {error}",
            _EXPECTED,
            "run the command in the folder that holds the module",
        ) from error
    except AttributeError as error:
        raise InputError(f"'{module_name}' has no '{function_name}'", _EXPECTED) from error
    except (Exception, SystemExit) as error:
        raise _raised(f"the pipeline's module '{module_name}'", error) from error
    if not callable(function):
        raise InputError(f"the pipeline '{name}' is a {type(function).__name__}", _EXPECTED)
    return function


def _check_result(name: str, result: Any) -> None:
    if not isinstance(result, tuple) or len(result) != 2:
        raise InputError(f"the pipeline '{name}' returned a {type(result).__name__}", _EXPECTED)
    if isinstance(result[1], Mapping | str | bytes):
        raise InputError(
            f"the frames of the pipeline '{name}' are one {type(result[1]).__name__}",
            "a sequence of payloads for the first stage",
            "put it into a list",
        )
    for part in result:
        if not hasattr(part, "__iter__") and not hasattr(part, "__getitem__"):
            kinds = ", ".join(type(one).__name__ for one in result)
            raise InputError(f"the pipeline '{name}' returned ({kinds})", _EXPECTED)
