"""What a file really is: told from its content, never from its name."""

import os
import stat
import zipfile
from pathlib import Path

from artifacts.errors import InputError

WEIGHT_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".tar", ".safetensors")
"""Files of weights, `.pth.tar` among them, for which a module of Python is built."""
MODULE_SUFFIXES = (*WEIGHT_SUFFIXES, ".pt2")
"""Files of which a module is made, and exported."""
_HEAD_BYTES = 4096
_MIN_PICKLE_PROTOCOL, _MAX_PICKLE_PROTOCOL = 2, 5


def require_file(path: Path | str, expected: str) -> Path:
    """Checks that a path is a readable, non-empty regular file.

    Args:
        path: the file to check; a symbolic link to a regular file is fine.
        expected: what the file should be, for the error ("an ONNX model").

    Returns:
        the path.

    Raises:
        InputError: it is missing, a folder, a device or pipe, empty, or not readable.
    """
    path = Path(path)
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot read {printable(path)}: {reason}", f"the path of {expected}"
        ) from error
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{printable(path)} is a folder", f"the path of {expected}")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{printable(path)} is not a regular file", f"the path of {expected}")
    if status.st_size == 0:
        raise InputError(f"{printable(path)} is empty", expected, "copy or export it again")
    if not os.access(path, os.R_OK):
        raise InputError(f"{printable(path)} may not be read", fix="change its permissions")
    return path


def describe_absence(path: Path) -> str:
    """Returns why there is no file or folder of this name to open; empty where there is one.

    A link that leads in a circle is there, as is a name in a folder that may not be read.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return "is a link to nothing" if path.is_symlink() else "does not exist"
    except (OSError, ValueError) as error:
        return f"cannot be opened: {getattr(error, 'strerror', None) or error}"
    return ""


def sniff_kind(path: Path) -> str:
    """Names what a file's first bytes say it is.

    Returns:
        "zip", "pickle", "tar", "safetensors", "lfs pointer", "text", "hdf5", "tflite", "onnx"
        (starts as a protobuf ModelProto does) or "unknown".
    """
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    is_safetensors = _is_safetensors(head)
    if (head[:2] == b"PK" and not is_safetensors) or zipfile.is_zipfile(path):
        return "zip"
    for kind, matches in (
        ("safetensors", is_safetensors),
        ("pickle", _is_pickle(head)),
        ("hdf5", head.startswith(b"\x89HDF")),
        ("tflite", head[4:8] == b"TFL3"),
        ("tar", head[257:262] == b"ustar"),
        ("lfs pointer", head.startswith(b"version https://git-lfs")),
        ("safetensors", head[8:9] == b"{"),
        ("onnx", _is_onnx(head)),
        ("text", _is_text(head)),
    ):
        if matches:
            return kind
    return "unknown"


def printable(path: Path | str) -> str:
    """Returns a path as one line of printable text, control characters escaped."""
    text = str(path)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _is_safetensors(head: bytes) -> bool:
    """The length of a header in eight bytes, less than 4 GiB, and its first brace.

    The length may look like the start of something else: 640 is a pickle's, 19280 a zip's.
    """
    return head[4:9] == b"\0\0\0\0{"


def _is_pickle(head: bytes) -> bool:
    if len(head) < 2 or head[0] != 0x80:
        return False
    return _MIN_PICKLE_PROTOCOL <= head[1] <= _MAX_PICKLE_PROTOCOL


def _is_onnx(head: bytes) -> bool:
    """A ModelProto starts with its ir_version: field 1, a small varint, then another field."""
    return len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 0x80


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8", errors="strict" if len(head) < _HEAD_BYTES else "ignore")
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\r\n\t\f" for character in text)
