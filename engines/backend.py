"""What a runtime's file has to offer to be a row of `BACKENDS`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from artifacts.file_kind import require_file
from engines.session import Session, SessionSettings


@dataclass(frozen=True)
class RuntimeStatus:
    """Whether a runtime can be used on this machine.

    Attributes:
        name: the backend's name.
        available: whether `open_session` can work with it here.
        version: the installed version, empty where none is.
        reason: why it is not available; empty where it is.
    """

    name: str
    available: bool
    version: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One runtime.

    Attributes:
        name: the name users type after `--runtime`.
        suffixes: the files it opens.
        summary: one line on what it is for.
        probe: tells whether it is usable here; imports the runtime, never raises.
        open: opens a file; raises InputError for a bad file and UnavailableError where the
            runtime or its device is missing.
    """

    name: str
    suffixes: tuple[str, ...]
    summary: str
    probe: Callable[[], RuntimeStatus]
    open: Callable[[Path, SessionSettings], Session]

    def check_file(self, path: Path) -> None:
        """Refuses a file that this runtime cannot open.

        Raises:
            InputError: `path` is missing, a folder, empty, or of another kind.
        """
        wanted = f"a {' or '.join(self.suffixes)} file"
        require_file(path, wanted)
        if path.suffix.lower() not in self.suffixes:
            raise InputError(f"{path} is not for the runtime '{self.name}'", wanted)


def probe_import(name: str, load: Callable[[], Any]) -> RuntimeStatus:
    """Returns whether a runtime's module can be had.

    Args:
        name: the backend's name.
        load: imports the module; it may raise anything.
    """
    try:
        version = str(load().__version__)
    except Exception as error:
        return RuntimeStatus(name, False, reason=first_line(error))
    return RuntimeStatus(name, True, version)


def first_line(error: BaseException, limit: int = 200) -> str:
    """Returns the telling line of a runtime's long error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from", "at ", "File "))]
    return (telling or lines or [type(error).__name__])[0][:limit]
