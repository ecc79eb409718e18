"""Samples from an `.npz` file, read row by row and without unpickling."""

import zipfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from artifacts.errors import InputError, MissingInputsError, UnsafeFileError
from artifacts.file_kind import printable
from artifacts.input_spec import InputSpec
from artifacts.pixel_levels import find_extremes
from artifacts.samples import Samples, TensorShape, spread_indices

_SKIP_BYTES = 2**24
_BFLOAT16 = np.dtype("V2")
"""How numpy.savez writes the bfloat16 of ml_dtypes, which numpy itself has no name for."""


def read_array_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each array of an `.npz` by its name; the numbers are not read.

    Raises:
        InputError: it is no such file, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                item.removesuffix(".npy"): _read_header(archive.open(item))[0]
                for item in archive.namelist()
            }
    except (ValueError, OSError, RuntimeError, *_ZIP_ERRORS) as error:
        raise InputError(
            f"{printable(path)} is not a complete .npz file", "what numpy.savez writes"
        ) from error


@dataclass
class _Member:
    """One array of the archive; `stream` is open at the start of row `next_row`."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data_offset: int
    stream: IO[bytes]
    next_row: int = 0

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=object)) * self.dtype.itemsize


class NpzSamples(Samples):
    """One sample per row of the arrays; memory holds one row at a time.

    Args:
        path: the `.npz` file.
        inputs: the network's inputs; each needs an array of its name, [samples, ...]. A batch of 1
            may have an axis of its own behind it, as in samples that were stacked. A single
            array for a single input may have any name: a module's argument, its export and a
            training call the same input differently.
        limit: use at most this many rows, spread evenly.
        optional: inputs that are left out where the file has no array of their name.
        spec: how pixels become a picture's tensor, where that is known.

    Attributes:
        unused: arrays of the file that are no input of the network.
        unscaled: arrays of bytes whose numbers are what a float input gets.
    """

    def __init__(
        self,
        path: Path,
        inputs: dict[str, TensorShape],
        limit: int | None,
        optional: Collection[str] = (),
        spec: InputSpec | None = None,
    ) -> None:
        self._label = printable(path)
        self._spec = spec
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise InputError(
                f"{self._label} is not a complete .npz file", "what numpy.savez writes"
            ) from error
        arrays = [item.removesuffix(".npy") for item in self._archive.namelist()]
        inputs = {k: item for k, item in inputs.items() if k in arrays or k not in optional}
        self._inputs = inputs
        is_only = len(inputs) == 1 and len(arrays) == 1
        self._members = {name: self._open_member(arrays[0] if is_only else name) for name in inputs}
        used = {member.name for member in self._members.values()}
        self.unused = tuple(name for name in arrays if name not in used)
        for name, tensor in inputs.items():
            _check_member(self._members[name], tensor, self._label)
        self.unscaled = tuple(
            member.name
            for name, member in self._members.items()
            if member.dtype == np.uint8 and np.dtype(inputs[name].dtype).kind == "f"
        )
        count = self._common_count()
        self._rows = spread_indices(count, limit)
        super().__init__([f"{self._label}[{row}]" for row in self._rows])

    @property
    def extremes(self) -> tuple[dict[str, NDArray[Any]], ...]:
        """A black and a white picture as samples; none where no array has pixels of the spec."""
        if self._spec is None:
            return ()
        return find_extremes(self, [self._spec])

    def _open_member(self, name: str) -> _Member:
        try:
            info = self._archive.getinfo(f"{name}.npy")
        except KeyError:
            names = [item.removesuffix(".npy") for item in self._archive.namelist()]
            error = MissingInputsError(
                f"{self._label} has the arrays {', '.join(names[:5]) or '(none)'}",
                f"one per network input: {_describe(self._inputs)}",
                f"write it with numpy.savez(FILE, **{{'{name}': array}})",
            )
            error.missing = tuple(item for item in self._inputs if item not in names)
            raise error from None
        try:
            stream = self._archive.open(info)
            shape, is_fortran, dtype = _read_header(stream)
        except (ValueError, OSError, RuntimeError, *_ZIP_ERRORS) as error:
            raise InputError(f"array '{name}' of {self._label} is damaged: {error}") from error
        label = f"array '{name}' of {self._label}"
        if dtype.hasobject:
            raise UnsafeFileError(f"{label} holds Python objects", "numbers")
        if is_fortran and len(shape) > 1:
            raise InputError(
                f"{label} is in Fortran order", "C order", "use numpy.ascontiguousarray"
            )
        member = _Member(name, shape, dtype, stream.tell(), stream)
        if shape and info.file_size - member.data_offset != shape[0] * member.row_bytes:
            raise InputError(f"{label} is incomplete", f"data of the shape {list(shape)}")
        return member

    def _common_count(self) -> int:
        counts = {name: member.shape[0] for name, member in self._members.items()}
        if len(set(counts.values())) != 1:
            raise InputError(
                f"the arrays of {self._label} have different numbers of samples: {counts}",
                "the same first axis",
            )
        count = next(iter(counts.values()))
        if count == 0:
            raise InputError(f"{self._label} has no samples", "at least one row per array")
        return count

    def _read(self, index: int) -> dict[str, NDArray[Any]]:
        feeds = {}
        for name, tensor in self._inputs.items():
            row = self._read_row(self._members[name], self._rows[index])
            with np.errstate(over="ignore"):
                feeds[name] = row.astype(tensor.dtype).reshape(tensor.shape)
        return feeds

    def _read_row(self, member: _Member, row: int) -> NDArray[Any]:
        try:
            if row < member.next_row:
                member.stream = self._archive.open(f"{member.name}.npy")
                member.stream.read(member.data_offset)
                member.next_row = 0
            _skip(member.stream, (row - member.next_row) * member.row_bytes)
            content = member.stream.read(member.row_bytes)
        except (OSError, ValueError, *_ZIP_ERRORS) as error:
            raise InputError(
                f"row {row} of array '{member.name}' of {self._label} is damaged: {error}"
            ) from error
        if len(content) != member.row_bytes:
            raise InputError(f"array '{member.name}' of {self._label} ends in row {row}")
        member.next_row = row + 1
        if member.dtype == _BFLOAT16:
            halves: NDArray[Any] = np.frombuffer(content, "<u2").astype(np.uint32) << 16
            return halves.view(np.float32)
        return np.frombuffer(content, member.dtype)


_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        return npy_format.read_array_header_1_0(stream)
    if version == (2, 0):
        return npy_format.read_array_header_2_0(stream)
    raise ValueError(f"its format version is {version}")


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0:
        skipped = len(stream.read(min(count, _SKIP_BYTES)))
        if not skipped:
            return
        count -= skipped


def _check_member(member: _Member, tensor: TensorShape, label: str) -> None:
    expected = _describe_array(tensor)
    name = f"array '{member.name}' of {label}"
    if not member.shape or member.shape[1:] not in (tensor.row_shape, tensor.shape):
        raise InputError(f"{name} has the shape {list(member.shape)}", expected)
    if member.dtype == _BFLOAT16 and tensor.takes(np.dtype(np.float32)):
        return
    if tensor.takes(member.dtype):
        return
    fix = "convert it with .astype"
    if member.dtype.kind == "V":
        fix = "numpy has no such type: convert it with .astype('float32') before saving it"
    if member.dtype == np.uint8 and np.dtype(tensor.dtype).kind == "f":
        fix = (
            "these look like raw pixels: scale them as in training (with .astype alone where the "
            "network does that itself), or give a folder of pictures"
        )
    raise InputError(f"{name} is {member.dtype}", expected, fix)


def _describe(inputs: dict[str, TensorShape]) -> str:
    return ", ".join(f"'{name}' {_describe_array(tensor)}" for name, tensor in inputs.items())


def _describe_array(tensor: TensorShape) -> str:
    sizes = ("samples", *(str(size) for size in tensor.row_shape))
    return f"[{', '.join(sizes)}] {tensor.dtype}"
