"""Runs a command: errors become one line and an exit code, interrupts leave nothing behind.

Exit codes: 0 pass, 1 gate failed, 2 wrong use or bad input, 3 inconclusive, 4 invalid environment,
5 internal error, 130 and 143 interrupted, 141 the reader of a pipe went away.
"""

import errno
import io
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from artifacts.errors import (
    FramefitError,
    InputError,
    MissingExtraError,
    find_missing_extra,
)
from artifacts.log_lines import defuse
from artifacts.own_packages import OUR_PACKAGES
from framefit.first_moments import TOLD
from framefit.interrupts import Interrupt, interruptible

_ClickException: Any = typer.BadParameter.__mro__[2]
_DEBUG = "--debug"
_JSON = "--json"
_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)


def run_command(program: str, command: Any, arguments: Sequence[str] | None = None) -> int:
    """Runs a click command and returns its exit code.

    Args:
        program: the name to show in usage lines.
        command: the command or group.
        arguments: the command line without the program; None for this process's own, which ends
            with the command: once interrupted, it is not disturbed on its way out.
    """
    ends_process = arguments is None
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    is_debug = _DEBUG in arguments
    arguments = [argument for argument in arguments if argument != _DEBUG]
    _open_streams()
    try:
        with (
            interruptible(ends_process),
            _quiet_libraries(),
            _text_beside_json(arguments) as words,
        ):
            return _invoke(program, command, words)
    except (BrokenPipeError, SystemExit) as end:
        # rich turns a closed pipe into exit code 1, which is that of a failed gate.
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Interrupt as interrupt:
        _say(TOLD)
        return 128 + interrupt.signal
    except Exception as error:
        if is_debug:
            traceback.print_exc()
        return _report(error, program, name_command(program, command, arguments))


def _open_streams() -> None:
    """Closed streams swallow what is written to them; what an encoding lacks becomes an escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def _text_beside_json(arguments: list[str]) -> Iterator[list[str]]:
    """Sends all text to standard error where the JSON goes to standard output (`--json -`).

    Descriptors are exchanged, so that runtimes and child processes follow.

    Yields:
        the arguments, with the stream's own path in the place of `-`.
    """
    words = [
        word
        for argument in arguments
        for word in (argument.split("=", 1) if argument.startswith(f"{_JSON}=") else [argument])
    ]
    places = [
        at for at, word in enumerate(words) if word in _STDOUT and words[at - 1 : at] == [_JSON]
    ]
    if not places:
        yield arguments
        return
    stream = os.dup(1)
    os.dup2(2, 1)
    for place in places:
        words[place] = f"/dev/fd/{stream}"
    try:
        yield words
        sys.stdout.flush()
    finally:
        os.dup2(stream, 1)
        os.close(stream)


def _invoke(program: str, command: Any, arguments: list[str]) -> int:
    try:
        with command.make_context(program, arguments) as context:
            result = command.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except typer.Exit as end:
        sys.stdout.flush()
        return int(end.exit_code)


def name_command(program: str, command: Any, arguments: Sequence[str]) -> str:
    """Returns the program with the names of the commands that its arguments begin with."""
    names = [program]
    for argument in arguments:
        if argument.startswith("-"):
            continue
        if not hasattr(command, "list_commands") or argument not in command.list_commands(None):
            break
        names.append(argument)
        try:
            command = command.get_command(None, argument)
        except ImportError:
            break
    return " ".join(names)


def _report(error: Exception, program: str, name: str) -> int:
    """Prints an error as one line and returns its exit code.

    Args:
        error: what ended the command.
        program: the program that was called.
        name: the program and its command.
    """
    if isinstance(error, ModuleNotFoundError):
        error = find_missing_extra(error) or error
    if isinstance(error, OSError) and error.errno in _NO_SPACE and error.filename is None:
        error = InputError(
            f"cannot write to standard output or a temporary file: {error.strerror}",
            fix="free space on the disk, or send the output elsewhere",
        )
    if isinstance(error, OSError) and error.errno in _TOO_MANY_FILES:
        error = FramefitError(
            f"no file can be opened: {error.strerror}", fix="raise the limit, see: ulimit -n"
        )
    if isinstance(error, FramefitError):
        before = f"{name}: " if isinstance(error, MissingExtraError) else ""
        _say(f"error: {before}{error}")
        return error.exit_code
    if isinstance(error, _ClickException):
        return _report_usage(error, program)
    text = " ".join(str(error).split())[:300]
    _say(
        f"error: internal: {type(error).__name__}: {text}; run it again with {_DEBUG} to see where"
    )
    return 5


def _report_usage(error: Any, program: str) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context:
        typer.echo(context.get_help(), err=True)
    else:
        where = context.command_path if context else program
        _say(f"error: {error.format_message().rstrip('.')}; see '{where} --help'")
    return 2


def _say(text: str) -> None:
    line = " ".join(text.split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in line)
    encoding = sys.stderr.encoding or "utf-8"
    sys.stderr.write(defuse(shown).encode(encoding, "replace").decode(encoding) + "\n")


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return defuse(f"{level}{record.getMessage()}")


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Shows our own messages as one line each, and none of the libraries' warnings.

    What is no warning is shown only to people, as the progress bars are. Handlers that a user's
    module gives the root logger do not show ours once more.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    loggers = [logging.getLogger(name) for name in OUR_PACKAGES]
    propagated = [logger.propagate for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.addHandler(handler)
            logger.propagate = False
            logger.setLevel(logging.INFO if sys.stderr.isatty() else logging.WARNING)
        try:
            yield
        finally:
            for logger, is_propagated in zip(loggers, propagated, strict=True):
                logger.removeHandler(handler)
                logger.propagate = is_propagated
