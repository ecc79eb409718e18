"""The user's own frame: `package.module:function`, which returns its stages and its frames."""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from latency_budget.stage import Stage, check_stages

_EXPECTED = "package.module:function, a function that returns (stages, frames)"


def load_pipeline(name: str, model: Path | None = None) -> tuple[list[Stage], Iterable[Any]]:
    """Imports and calls the function that `name` names; the current folder is searched too.

    Args:
        name: `package.module:function`.
        model: passed to the function as its only argument where it is given.

    Returns:
        the stages in order, and the payloads of their first one.

    Raises:
        InputError: there is no such function, or it does not return stages and frames.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise InputError(f"the pipeline is '{name}'", _EXPECTED)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
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
    result = function(model) if model is not None else function()
    if not isinstance(result, tuple) or len(result) != 2:
        raise InputError(f"the pipeline '{name}' returned a {type(result).__name__}", _EXPECTED)
    stages = list(result[0])
    check_stages(stages)
    return stages, result[1]
