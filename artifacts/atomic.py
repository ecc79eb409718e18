"""Writing files so that a reader sees the old content or the new, never a part."""

import fcntl
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from artifacts.errors import InputError


@contextmanager
def atomic_path(target: Path | str, *, is_lasting: bool = True) -> Iterator[Path]:
    """Yields a temporary path beside `target`, which replaces it if the block succeeds.

    The temporary file is fsynced before the rename and the folder after it, and so are the folders
    in which new ones were made, so that a power loss leaves the old file or the new one. The new
    file may be read and written by whom the old one could, or else by whom the umask lets. On any
    exception (interrupts too) the temporary file is removed and `target` is as it was. A device, a
    pipe or an open stream such as /dev/stdout is written to and never replaced.

    Args:
        target: the file to write; its folder is made if it is missing.
        is_lasting: whether it has to outlive a power loss; without, nothing waits for the disk, and
            a reader has to notice a file that is damaged. A kill leaves it whole in any case.

    Yields:
        a path in the same folder and with the same suffix, which the block must write.

    Raises:
        InputError: the folder cannot be written, or `target` is a folder.
    """
    target = Path(target)
    _refuse_folder(target)
    if _is_stream(target):
        with tempfile.TemporaryDirectory(prefix="framefit-") as folder:
            yield Path(folder) / target.name
            _pour(Path(folder) / target.name, target)
        return
    try:
        make_folder(target.parent)
        temporary = _make_temporary(target)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        yield temporary
        if is_lasting:
            sync(temporary)
        temporary.replace(target)
        if is_lasting:
            sync(target.parent)
    except OSError as error:
        if error.filename in (None, str(temporary), str(target)):
            raise _unwritable(target, error) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def require_writable(target: Path | str) -> Path:
    """Checks before long work that `target` can be written at its end; nothing is changed.

    Raises:
        InputError: it is a folder, or its folder is missing a parent or may not be written; or it
            is an option of the command line that was taken for the file of another.
    """
    target = Path(target)
    if str(target).startswith("-"):
        raise InputError(
            f"cannot write {target}: it looks like an option",
            "the path of a file",
            "/dev/stdout is standard output",
        )
    _refuse_folder(target)
    if _is_stream(target):
        return target
    folder = target.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return target
    except OSError as error:
        raise _unwritable(target, error) from error


def _refuse_folder(target: Path) -> None:
    try:
        is_folder = target.is_dir()
    except OSError as error:
        raise _unwritable(target, error) from error
    if is_folder:
        raise InputError(f"cannot write {target}: it is a folder", "the path of a file")


def require_another_file(target: Path, inputs: Mapping[str, Path]) -> None:
    """Checks that an output is none of the files that it is made of.

    Args:
        target: what `--out` names.
        inputs: files that are read, by what the error calls them ("the teacher").

    Raises:
        InputError: it is one of them, by whatever path.
    """
    for name, path in inputs.items():
        if target.exists() and path.exists() and target.samefile(path):
            raise InputError(f"--out {target} is {name} itself", "another file")


@contextmanager
def only_writer(target: Path | str) -> Iterator[None]:
    """Lets one process at a time read a file and write it again; others wait for it.

    The lock is on the folder, since the file itself is replaced. It ends with its process.

    Args:
        target: the file; its folder is made if it is missing.

    Raises:
        InputError: the folder cannot be made or read.
    """
    target = Path(target)
    try:
        make_folder(target.parent)
        descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, such that a power loss does not take them away."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync(place.parent)


def sync(path: Path) -> None:
    """Waits until a file's content, or what a folder lists, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(target: Path | str, content: bytes) -> None:
    """Writes `content` to `target` atomically."""
    with atomic_path(target) as temporary:
        temporary.write_bytes(content)


def write_text(target: Path | str, content: str) -> None:
    """Writes `content` to `target` atomically, as UTF-8."""
    write_bytes(target, content.encode())


def write_json(target: Path | str, content: Any) -> None:
    """Writes `content` to `target` atomically; NaN and infinity are refused, JSON has none."""
    write_text(target, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _make_temporary(target: Path) -> Path:
    """Makes an empty file beside `target`, as readable as that is, or as the umask has it.

    `tempfile` makes files that only their owner reads, and the umask cannot be asked for without
    changing it for all threads; the system applies it where a file is made.
    """
    name = f".{target.stem[:40]}.tmp-{secrets.token_hex(8)}{target.suffix}"
    temporary = target.with_name(name)
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    if target.is_file() and not target.is_symlink():
        with suppress(OSError):  # Another owner's bits are not ours to give.
            temporary.chmod(target.stat().st_mode & 0o777 | stat.S_IWUSR)
    return temporary


def _is_stream(target: Path) -> bool:
    return _own_descriptor(target) is not None or (target.exists() and not target.is_file())


def _own_descriptor(target: Path) -> int | None:
    """Returns the number of the open stream that a path such as /dev/stdout or /dev/fd/63 names."""
    link = target.parent / target.readlink() if target.is_symlink() else target
    for place in (target, link):
        if place.name.isdigit() and place.parent.resolve() == Path(f"/proc/{os.getpid()}/fd"):
            return int(place.name)
    return None


def _pour(source: Path, target: Path) -> None:
    """Writes a file's content to a stream, where the stream stands."""
    number = _own_descriptor(target)
    try:
        descriptor = os.open(target, os.O_WRONLY) if number is None else os.dup(number)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(source.read_bytes())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(target, error) from error


def _unwritable(target: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write {target}: {error.strerror or error}",
        fix="choose a path in a writable folder with free space",
    )
