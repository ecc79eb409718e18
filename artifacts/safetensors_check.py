"""Checks of a safetensors header, stricter than the library's own."""

import json
import math
from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from artifacts.file_kind import printable
from artifacts.strict_json import read_json

MAX_HEADER_BYTES = 100_000_000
_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2,
    "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


def check_safetensors(path: Path, content: bytes) -> None:
    """Checks that the tensors' byte ranges fit their shapes and cover the file exactly.

    Args:
        path: the file, for the errors.
        content: all its bytes.

    Raises:
        InputError: the header is not valid, or ranges overlap, leave gaps or bytes behind.
    """
    label = printable(path)
    size = int.from_bytes(content[:8], "little") if len(content) >= 8 else -1
    if not 0 < size <= min(MAX_HEADER_BYTES, len(content) - 8):
        raise InputError(
            f"{label} has {len(content)} bytes and a header of {size}",
            "a complete safetensors file",
        )
    try:
        header = read_json(content[8 : 8 + size].decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"the header of {label} is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise InputError(f"the header of {label} is not a JSON object")
    header.pop("__metadata__", None)
    end = 0
    for begin, stop, name in sorted(_span(name, entry, label) for name, entry in header.items()):
        if begin != end:
            problem = "overlap" if begin < end else "leave a gap"
            raise InputError(f"tensors of {label} {problem} at '{name}'")
        end = stop
    if end != len(content) - 8 - size:
        raise InputError(
            f"{label} has {len(content) - 8 - size} bytes of data", f"{end} as its header says"
        )


def read_metadata(content: bytes) -> dict[str, Any]:
    """Returns the metadata of a file that was checked; empty where it has none."""
    size = int.from_bytes(content[:8], "little")
    found = json.loads(content[8 : 8 + size].decode()).get("__metadata__")
    return found if isinstance(found, dict) else {}


def _span(name: str, entry: Any, label: str) -> tuple[int, int, str]:
    what = f"tensor '{name}' of {label}"
    try:
        dtype, shape, (begin, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(f"{what} lacks dtype, shape or data_offsets") from error
    numbers = [begin, stop, *(shape if isinstance(shape, list) else [-1])]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise InputError(f"{what} has a shape or offset that is no count")
    if dtype not in _ITEM_BYTES:
        raise InputError(f"{what} has the type {dtype!r}", ", ".join(_ITEM_BYTES))
    expected = math.prod(shape) * _ITEM_BYTES[dtype]
    if stop - begin != expected:
        raise InputError(f"{what} has {stop - begin} bytes", f"{expected} for its shape and type")
    return begin, stop, name
