"""Checks of the zip archives that PyTorch writes, before any other code reads them."""

import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

from artifacts.errors import InputError, UnsafeFileError
from artifacts.file_kind import printable

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ENCRYPTED_FLAGS = 0x1 | 0x40 | 0x2000
_LINK_TYPE = 0xA000
_MAX_MEMBERS = 200_000


def check_torch_zip(path: Path) -> list[str]:
    """Checks an archive that PyTorch wrote: whole, unambiguous and without traps.

    PyTorch stores its members uncompressed and one after the other, under one folder.

    Returns:
        the members' names without the leading folder.

    Raises:
        UnsafeFileError: names twice, outside the archive, links, encryption, compression, local
            headers that differ from the directory, or members that overlap.
        InputError: the archive is truncated or a checksum is wrong.
    """
    label = printable(path)
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            if len(members) > _MAX_MEMBERS:
                raise UnsafeFileError(f"{label} has {len(members)} members")
            _check_names([item.filename for item in members], label)
            for item in members:
                _check_member(item, label)
            _check_layout(stream, members, label)
            damaged = archive.testzip()
    except (
        zipfile.BadZipFile,
        OSError,
        EOFError,
        NotImplementedError,
        UnicodeDecodeError,
        struct.error,
    ) as error:
        raise InputError(
            f"{label} is not a complete checkpoint: {error}", fix="copy it again"
        ) from error
    if damaged:
        raise InputError(f"{label} is damaged: checksum of '{damaged}'", fix="copy it again")
    return [item.filename.partition("/")[2] for item in members]


def _check_names(names: list[str], label: str) -> None:
    seen: set[str] = set()
    for name in names:
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
            raise UnsafeFileError(f"{label} has a member outside the archive: '{name[:80]}'")
        if name in seen:
            raise UnsafeFileError(f"{label} has the member '{name[:80]}' twice")
        seen.add(name)
    roots = {name.partition("/")[0] for name in names}
    if len(roots) != 1 or not all("/" in name for name in names):
        raise InputError(
            f"{label} is a zip archive, but not one that PyTorch wrote", "a PyTorch checkpoint"
        )


def _check_member(item: zipfile.ZipInfo, label: str) -> None:
    name = item.filename[:80]
    if item.flag_bits & _ENCRYPTED_FLAGS:
        raise UnsafeFileError(f"{label} has the encrypted member '{name}'")
    if (item.external_attr >> 16) & 0xF000 == _LINK_TYPE:
        raise UnsafeFileError(f"{label} has the link '{name}'")


def refuse_compressed(path: Path) -> None:
    """Refuses compressed members, which could inflate without limit; PyTorch stores weights.

    Raises:
        UnsafeFileError: a member is compressed.
    """
    with zipfile.ZipFile(path) as archive:
        for item in archive.infolist():
            if item.compress_type != zipfile.ZIP_STORED or item.compress_size != item.file_size:
                raise UnsafeFileError(
                    f"{printable(path)} has the compressed member '{item.filename[:80]}' "
                    f"({item.compress_size} to {item.file_size} bytes)",
                    "stored members, as PyTorch writes them",
                )


def _check_layout(stream: BinaryIO, members: list[zipfile.ZipInfo], label: str) -> None:
    """Local headers say what the directory says; members neither overlap nor follow a prefix."""
    end = 0
    for item in sorted(members, key=lambda member: member.header_offset):
        stream.seek(item.header_offset)
        fields = _LOCAL_HEADER.unpack(stream.read(_LOCAL_HEADER.size))
        name = stream.read(fields[9])
        is_same = fields[0] == b"PK\x03\x04" and name == item.orig_filename.encode()
        is_same &= fields[2] & _ENCRYPTED_FLAGS == 0 and fields[3] == item.compress_type
        is_first_in_place = end > 0 or item.header_offset == 0
        if not is_same or item.header_offset < end or not is_first_in_place:
            raise UnsafeFileError(
                f"{label} is ambiguous: its directory and the header of '{item.filename[:80]}' "
                "differ"
            )
        end = item.header_offset + _LOCAL_HEADER.size + fields[9] + fields[10]
        end += item.compress_size
