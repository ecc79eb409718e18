"""Finds the function that builds a network: a file never chooses the code that runs."""

import importlib
import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

from artifacts.errors import InputError, UnsafeFileError
from artifacts.own_packages import modules_of

_OWN_BUILDER = re.compile(r"perception(\.[a-z_]\w*)+:build\w*")
_WITHOUT_ARGUMENTS = (
    "it is called without arguments: name a function that calls it with those that it needs, such "
    "as def build(): return Network(width=24)"
)
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def find_builder(name: str, factory: str | None = None) -> Callable[..., Any]:
    """Imports a builder.

    Args:
        name: "package.module:function"; a `build…` function of a `perception` module, or exactly
            what `factory` names.
        factory: the builder that the user gave on the command line; its module, and what it
            imports while it builds, may lie in the current folder.

    Returns:
        the function, to be called in any folder.

    Raises:
        UnsafeFileError: the name is neither.
        InputError: there is no such module or function.
    """
    if name != factory and not _OWN_BUILDER.fullmatch(name):
        raise UnsafeFileError(
            f"the checkpoint wants to run '{name[:100]}'",
            "a builder of perception, or the one you name",
            f"if you trust it, add --factory {name[:100]}"
            if _NAME.fullmatch(name)
            else "save the checkpoint again with a valid builder",
        )
    if not _NAME.fullmatch(name):
        raise InputError(f"--factory is '{name[:100]}'", "package.module:function")
    module_name, _, function_name = name.partition(":")
    module = _import(module_name, name, is_own=name != factory)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(
            f"'{module_name}' has no function '{function_name}'", "package.module:function"
        )
    if hasattr(function, "state_dict") and not isinstance(function, type):
        raise InputError(
            f"'{name}' is a module ({type(function).__name__})", "a function that returns one"
        )
    if name != factory and getattr(function, "__module__", None) != module_name:
        raise UnsafeFileError(f"'{name}' is not defined in that module", "a builder of perception")
    return _beside(function, Path.cwd()) if name == factory else function


def _beside(function: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """Returns a user's builder that finds the modules of its folder while it runs, too."""

    @wraps(function)
    def build(*arguments: Any) -> Any:
        with modules_of(folder):
            return function(*arguments)

    return build


def call_builder(build: Callable[..., Any], name: str, *arguments: Any) -> Any:
    """Calls a builder; whatever it raises becomes one line that names it.

    Raises:
        InputError: it failed.
    """
    try:
        return build(*arguments)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the builder '{name}' failed: {type(error).__name__}: {error}",
            "a function that returns the network",
            "" if _takes(build, arguments) else _WITHOUT_ARGUMENTS,
        ) from error


def _takes(build: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
    """Returns whether a builder can be called with these arguments, as far as it says."""
    try:
        signature(build).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # what is written in C says nothing
        return True
    return True


def _import(module_name: str, name: str, *, is_own: bool) -> Any:
    try:
        with nullcontext() if is_own else modules_of(Path.cwd()):
            return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"cannot import the module of '{name}': {type(error).__name__}: {error}",
            "package.module:function that Python finds from the current folder",
        ) from error
