"""Opens only what a trusted key released: the bytes that were verified are those that are loaded.

A file can be replaced between its verification and its opening, and a runtime opens it by its path.
So the file is copied into a folder of this process alone, with its signature and its manifest; the
copy is verified, and the copy is what the runtime is given.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

from artifacts.errors import FramefitError, InputError, UnsafeFileError
from artifacts.file_kind import printable, require_file
from artifacts.onnx_file import has_weights_beside
from artifacts.plan_manifest import manifest_path
from artifacts.release import Release, read_revoked, refuse_older, signature_path, verify_release
from artifacts.signature import read_public_key

_Given = TypeVar("_Given", bound=Path | None)


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Whose releases may be opened.

    Attributes:
        keys: public Ed25519 keys (PEM); none where every file is opened.
        revoked: keys and files that hold no longer, see `read_revoked`.
        newest: the record of the newest accepted releases, see `refuse_older`.
    """

    keys: Sequence[Path] | None = None
    revoked: Path | None = None
    newest: Path | None = None

    def __post_init__(self) -> None:
        if not self.keys and (self.revoked or self.newest):
            name = "--revoked" if self.revoked else "--newest"
            raise InputError(f"{name} would do nothing", "a trusted key", "give --trusted-key")

    def verify(self, path: Path) -> Release:
        """Verifies the release of a file, and notes it in `newest`.

        Raises:
            UnsafeFileError: the file may not be opened.
            InputError: a file cannot be read.
            MissingExtraError: `cryptography` is not installed.
        """
        release = verify_release(
            path,
            [read_public_key(key) for key in self.keys or ()],
            now=datetime.now(UTC),
            revoked=read_revoked(self.revoked) if self.revoked else (),
        )
        if self.newest is not None:
            refuse_older(release, self.newest)
        return release


@contextmanager
def open_trusted(trust: Trust, *paths: _Given) -> Iterator[tuple[_Given, ...]]:
    """Lends paths that may be opened in place of those given, until the block ends.

    Args:
        trust: whose releases may be opened; without keys the paths are lent as they are.
        paths: models and plans; None where one was not given.

    Raises:
        InputError: keys were given, and nothing to verify.
        UnsafeFileError: a file may not be opened. Messages of this and of all that is raised in the
            block name the files by the paths given.
    """
    if not trust.keys:
        yield paths
        return
    if not any(paths):
        raise InputError("--trusted-key was given without a file", "the MODEL to verify")
    with TemporaryDirectory(prefix="framefit-trusted-") as folder:
        places: list[tuple[Path, Path] | None] = [
            (path, Path(folder, str(number), path.name)) if path is not None else None
            for number, path in enumerate(paths)
        ]
        named = [place for place in places if place]
        try:
            for path, copy in named:
                _copy(path, copy.parent)
                trust.verify(copy)
                _refuse_weights_beside(copy)
            lent = tuple(place[1] if place else None for place in places)
            yield cast("tuple[_Given, ...]", lent)
        except FramefitError as error:
            for path, copy in named:
                _name_as_given(error, path, copy.parent)
            raise


def _copy(path: Path, folder: Path) -> None:
    """Copies a file and what is verified with it into a new folder."""
    require_file(path, "the file to verify")
    folder.mkdir()
    for member in (path, signature_path(path), manifest_path(path)):
        if member.exists():
            require_file(member, "a file of the release")
            try:
                shutil.copyfile(member, folder / member.name)
            except OSError as error:
                raise InputError(
                    f"cannot copy {printable(member)} to verify it: {error.strerror or error}",
                    "a readable file, and room for it in the folder for temporary files",
                ) from error


def _refuse_weights_beside(path: Path) -> None:
    """Refuses a network whose weights lie in other files, which its signature does not cover."""
    if has_weights_beside(path):
        raise UnsafeFileError(
            f"{path} has weights in files beside it, which no signature covers",
            "a network in one file",
            "save it with all of its weights (onnx.save does so by default) and sign that",
        )


def _name_as_given(error: FramefitError, path: Path, folder: Path) -> None:
    """Puts the path that was given in place of the copy's, which nobody knows."""
    given = "" if path.parent == Path() else f"{path.parent}/"
    error.what = error.what.replace(f"{folder}/", given)
    error.args = tuple(str(text).replace(f"{folder}/", given) for text in error.args)
