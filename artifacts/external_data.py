"""Reads the weights that an ONNX file keeps in files beside it, and nothing else.

`onnx.load` follows hard links, accepts data shorter than its tensor and opens a path again after it
checked it. Here each path component is opened without following links, and the very descriptor
that was checked is the one that is read.
"""

import hashlib
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath

import onnx

from artifacts.errors import InputError, UnsafeFileError

MAX_MODEL_BYTES = 2**31 - 1
_KNOWN_KEYS = frozenset({"location", "offset", "length", "checksum"})
_MAX_DIMS = 64
_PACKED_BITS = {"INT2": 2, "INT4": 4, "FLOAT4E2M1": 4}


@dataclass(frozen=True, kw_only=True)
class _Range:
    """Where one tensor's bytes are: `length` bytes from `offset` in the file at `location`."""

    tensor: str
    location: str
    offset: int
    length: int
    checksum: str


def iter_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yields every tensor of a graph: initializers, attributes, and those of its sub-graphs."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse_tensors = list(attribute.sparse_tensors)
    if attribute.HasField("sparse_tensor"):
        sparse_tensors.append(attribute.sparse_tensor)
    for sparse in sparse_tensors:
        yield sparse.values
        yield sparse.indices
    if attribute.HasField("g"):
        yield from iter_tensors(attribute.g)
    for graph in attribute.graphs:
        yield from iter_tensors(graph)


def load_external_data(model: onnx.ModelProto, path: Path, size_bytes: int) -> None:
    """Reads a model's external tensors into the model itself.

    Args:
        model: the parsed model; its external tensors become ordinary ones.
        path: the model's file; the data must lie in its folder or below.
        size_bytes: size of that file, counted towards the 2 GiB that a model may have.

    Raises:
        UnsafeFileError: the data's path leaves the folder or passes a link or a special file.
        InputError: the data is missing, too short, overlapping, altered or too large.
    """
    tensors = find_external(model)
    ranges = [_read_range(tensor, path) for tensor in tensors]
    if size_bytes + sum(item.length for item in ranges) > MAX_MODEL_BYTES:
        raise InputError(f"{path} and its data are larger than 2 GiB", "a model below 2 GiB")
    _refuse_overlaps(ranges, path)
    for location in dict.fromkeys(item.location for item in ranges):
        with _open_beside(path, location) as descriptor:
            for tensor, item in zip(tensors, ranges, strict=True):
                if item.location == location:
                    tensor.raw_data = _read(descriptor, item, path)
                    tensor.ClearField("external_data")
                    tensor.data_location = onnx.TensorProto.DEFAULT


def find_external(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Returns the tensors whose values lie in files beside the model's."""
    return [
        tensor
        for tensor in _all_tensors(model)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    ]


def _all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from iter_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            for attribute in node.attribute:
                yield from _attribute_tensors(attribute)


def _read_range(tensor: onnx.TensorProto, path: Path) -> _Range:
    label = f"external data of tensor '{tensor.name}' in {path}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if len(entries) != len(tensor.external_data):
        raise InputError(f"{label} names a key twice")
    unknown = sorted(set(entries) - _KNOWN_KEYS)
    if unknown:
        raise InputError(f"{label} has the unknown key '{unknown[0]}'", ", ".join(_KNOWN_KEYS))
    expected = tensor_bytes(tensor, path)
    offset = _parse_count(entries.get("offset", "0"), f"{label}: offset")
    length = _parse_count(entries.get("length", str(expected)), f"{label}: length")
    if length != expected:
        raise InputError(f"{label} is {length} bytes", f"{expected} bytes for its shape and type")
    return _Range(
        tensor=tensor.name,
        location=_safe_location(entries.get("location", ""), label),
        offset=offset,
        length=length,
        checksum=entries.get("checksum", ""),
    )


def tensor_bytes(tensor: onnx.TensorProto, path: Path) -> int:
    """Returns how many bytes a tensor's raw data has, from its shape and type.

    Raises:
        InputError: a dimension is negative, there are too many, or the type has no fixed size.
    """
    if len(tensor.dims) > _MAX_DIMS or any(size < 0 for size in tensor.dims):
        raise InputError(f"tensor '{tensor.name}' in {path} has dimensions no tensor can have")
    types = onnx.TensorProto.DataType
    if tensor.data_type not in types.values():
        raise InputError(
            f"tensor '{tensor.name}' in {path} has the element type {tensor.data_type}",
            f"a type that onnx {onnx.__version__} knows",
        )
    if tensor.data_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        raise InputError(f"tensor '{tensor.name}' in {path} has a type that cannot be stored raw")
    name = types.Name(tensor.data_type)
    bits = _PACKED_BITS.get(name.removeprefix("U"))
    if bits is None:
        bits = int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize) * 8
    return (math.prod(int(size) for size in tensor.dims) * bits + 7) // 8


def _parse_count(text: str, label: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > 2**62:
        raise InputError(f"{label} is '{text[:30]}'", "a count of bytes")
    return int(text)


def _safe_location(location: str, label: str) -> str:
    parts = PurePosixPath(location).parts
    unsafe = not parts or location.startswith("/") or ".." in parts
    if unsafe or "\\" in location or "\0" in location or ":" in location:
        raise UnsafeFileError(
            f"{label} is at '{location[:100]}'", "a relative path below the model's folder"
        )
    return str(PurePosixPath(*parts))


def _refuse_overlaps(ranges: list[_Range], path: Path) -> None:
    """Tensors may share exactly the same bytes (tied weights), but not overlap in part."""
    spans = sorted({(item.location, item.offset, item.length) for item in ranges if item.length})
    for before, after in pairwise(spans):
        if before[0] == after[0] and before[1] + before[2] > after[1]:
            raise InputError(f"external data of {path} overlaps at byte {after[1]} of {after[0]}")


@contextmanager
def _open_beside(path: Path, location: str) -> Iterator[int]:
    """Opens `location` below the folder of `path` without following any link."""
    *folders, name = PurePosixPath(location).parts
    guard = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = []
    try:
        opened.append(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY))
        for folder in folders:
            opened.append(os.open(folder, guard | os.O_DIRECTORY, dir_fd=opened[-1]))
        opened.append(os.open(name, guard | os.O_NONBLOCK, dir_fd=opened[-1]))
        _refuse_special(os.fstat(opened[-1]), location, path)
        yield opened[-1]
    except OSError as error:
        raise UnsafeFileError(
            f"cannot open external data '{location}' of {path}: {error.strerror}",
            "a regular file beside the model, not behind a link",
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _refuse_special(status: os.stat_result, location: str, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError(f"external data '{location}' of {path} is not a regular file")
    if status.st_nlink != 1:
        raise UnsafeFileError(
            f"external data '{location}' of {path} is a hard link to another file",
            fix="copy the file instead of linking it",
        )


def _read(descriptor: int, item: _Range, path: Path) -> bytes:
    label = f"external data '{item.location}' of {path}"
    size = os.fstat(descriptor).st_size
    if item.offset + item.length > size:
        raise InputError(
            f"{label} has {size} bytes, tensor '{item.tensor}' ends at {item.offset + item.length}",
            "the complete file",
        )
    if item.checksum:
        _verify_checksum(descriptor, item.checksum, label)
    chunks = []
    position, left = item.offset, item.length
    while left:
        chunk = os.pread(descriptor, min(left, 2**26), position)
        if not chunk:
            raise InputError(f"{label} became shorter while it was read")
        chunks.append(chunk)
        position, left = position + len(chunk), left - len(chunk)
    return b"".join(chunks)


def _verify_checksum(descriptor: int, expected: str, label: str) -> None:
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        stream.seek(0)
        actual = hashlib.file_digest(stream, "sha1").hexdigest()
    if actual != expected.lower():
        raise InputError(f"{label} has the SHA-1 {actual}", expected, "copy it again")
