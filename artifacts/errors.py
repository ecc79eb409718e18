"""The errors that every package shares.

    FramefitError                 exit 5: ours to mend
    ├── DeviceFaultError          exit 5: the GPU failed under way, and this process lost it
    ├── InputError (ValueError)   exit 2: wrong use or bad input; the user can mend it
    │   ├── UnsafeFileError       exit 2: the file could run code, or is not what its digest says
    │   └── MissingInputsError    exit 2: the data give a network not all of its inputs
    ├── InconclusiveError         exit 3: not enough evidence
    └── UnavailableError          exit 4: this machine lacks what the work needs
        └── MissingExtraError     exit 4: an optional package is not installed

A failed gate (exit 1) is a result and is returned, never raised.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from textwrap import shorten
from typing import ClassVar


class FramefitError(Exception):
    """An error told in one line: what was wrong, what was expected, what to do.

    Args:
        what: what was wrong, with the offending value and the file's name.
        expected: what would have been right.
        fix: what the user can do about it.
    """

    exit_code: ClassVar[int] = 5

    def __init__(self, what: str, expected: str = "", fix: str = "") -> None:
        self.what = what
        self.expected = expected
        self.fix = fix
        parts = [what]
        if expected:
            parts.append(f"expected {expected}")
        if fix:
            parts.append(fix)
        super().__init__("; ".join(" ".join(part.split()) for part in parts))


class DeviceFaultError(FramefitError):
    """The GPU failed in a way that stays: this process cannot use it again, a fresh one may."""


class InputError(FramefitError, ValueError):
    """Wrong use or bad input."""

    exit_code = 2


class UnsafeFileError(InputError):
    """A file that could run code when read, or whose digest does not match."""


class MissingInputsError(InputError):
    """Data that give a network not all of its inputs.

    Attributes:
        missing: names of the inputs that get nothing.
    """

    missing: tuple[str, ...] = ()

    def naming_states(self, states: Mapping[str, str]) -> InputError:
        """Returns the error with the `--state` options that make up for the missing inputs.

        Args:
            states: the output that gives each for the next frame.
        """
        options = " ".join(f"--state {name}={output}" for name, output in states.items())
        fix = f"{self.fix}; or, if the network computes it frame by frame, {options}"
        return InputError(self.what, self.expected, fix)


class InconclusiveError(FramefitError):
    """There is not enough evidence for an answer."""

    exit_code = 3


class UnavailableError(FramefitError):
    """This machine lacks what the work needs (a GPU, a driver, a runtime)."""

    exit_code = 4


class MissingExtraError(UnavailableError):
    """An optional package is not installed; the command line names the command before it.

    Args:
        package: the Python module that could not be imported.
        extra: the extra of framefit that brings it; empty where it is a package of its own.
        needed_for: the feature that needs it, where that is not the whole command.
    """

    def __init__(self, package: str, extra: str, needed_for: str = "") -> None:
        if needed_for:
            what = f"{needed_for} needs the Python package '{package}', which is not installed"
        else:
            what = f"the Python package '{package}' is not installed"
        wanted = f"'framefit[{extra}]'" if extra else package
        super().__init__(what, fix=f"install it with: pip install {wanted}")


EXTRAS = {
    "torch": "torch",
    "torchvision": "torch",
    "timm": "torch",
    "onnxscript": "torch",
    "safetensors": "torch",
    "lightning_fabric": "train",
    "tensorboard": "train",
    "tensorrt": "tensorrt",
    "pycuda": "tensorrt",
    "cuda": "tensorrt",
    "tensorrt_rtx": "tensorrt-rtx",
    "prometheus_client": "watch",
    "cryptography": "signing",
}
"""The extra of framefit that brings a package."""


def find_missing_extra(
    error: ModuleNotFoundError, needed_for: str = ""
) -> MissingExtraError | None:
    """Returns the error for an import that an extra would make work; None where none would."""
    package = (error.name or "").partition(".")[0]
    return MissingExtraError(package, EXTRAS[package], needed_for) if package in EXTRAS else None


def require_package(package: str, extra: str) -> None:
    """Checks before anything else that an extra is installed whole.

    Args:
        package: a top-level package that no other extra brings.
        extra: the extra of framefit that brings it.

    Raises:
        MissingExtraError: it is not installed.
    """
    if find_spec(package) is None:
        raise MissingExtraError(package, extra)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error that says something, at most 200 characters."""
    lines = [line.strip(" =") for line in str(error).splitlines()]
    telling = next((line for line in lines if line), type(error).__name__)
    return shorten(telling, 200, placeholder=" …")
