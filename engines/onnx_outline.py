"""Tells an ONNX file from another or a truncated one without any library.

Runtimes answer a wrong file with pages of log on the C level. An ONNX file is one protobuf message,
`ModelProto`, so walking its top-level fields (a few dozen bytes, whatever the size of the weights)
shows whether it is whole.
"""

import mmap
from pathlib import Path

from artifacts.errors import InputError

_MODEL_FIELDS = {1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26}
_GRAPH = 7
_VARINT, _LENGTH = 0, 2


def check_onnx_outline(path: Path) -> None:
    """Refuses a file whose outline is not that of a whole ONNX model.

    Args:
        path: an existing file that is not empty.

    Raises:
        InputError: it is something else, or its end is missing.
    """
    try:
        with (
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            found = _walk(content)
    except (ValueError, OSError) as error:
        raise InputError(f"{path} is not an ONNX model: {error}", "a whole .onnx file") from error
    if _GRAPH not in found:
        raise InputError(f"{path} holds no ONNX graph", "a whole .onnx file")


def _walk(content: mmap.mmap) -> set[int]:
    found = set()
    offset = 0
    while offset < len(content):
        tag, offset = _read_varint(content, offset)
        number, kind = tag >> 3, tag & 7
        if number not in _MODEL_FIELDS:
            raise ValueError(f"byte {offset} starts no field of one")
        if kind == _VARINT:
            _, offset = _read_varint(content, offset)
        elif kind == _LENGTH:
            length, offset = _read_varint(content, offset)
            offset += length
            found.add(number)
        else:
            raise ValueError(f"byte {offset} starts no field of one")
    if offset > len(content):
        raise ValueError(f"it is truncated, {offset - len(content)} bytes are missing")
    return found


def _read_varint(content: mmap.mmap, offset: int) -> tuple[int, int]:
    value = 0
    for position in range(10):
        if offset >= len(content):
            raise ValueError("it is truncated")
        byte = content[offset]
        offset += 1
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, offset
    raise ValueError(f"byte {offset} starts no field of one")
