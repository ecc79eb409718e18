"""A ring of frames in a file that a pipeline writes and a watcher reads, without locks.

The writer never waits and makes no system call; a reader that is too slow loses the oldest frames
and counts them. Each slot carries its frame's number, which is cleared before the slot is rewritten
and set after it: a reader takes a slot only where the number is the same before and after its copy.

Layout, little endian: 8 bytes magic, int64 slots, int64 stages, 512 bytes of stage names (UTF-8,
separated by line breaks, zeros behind); then per slot int64 number + 1, int64 latency in ns (-1 for
a dropped frame), int64 per stage.
"""

import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from artifacts.atomic import write_bytes
from artifacts.errors import InputError
from latency_budget.watch.sample import Sample

MAGIC = b"FFRING01"
NAMES_BYTES = 512
_HEAD = struct.Struct("<8sqq")
_DATA = _HEAD.size + NAMES_BYTES
_WORD = 8
_DROPPED = -1
MOST_SLOTS, MOST_STAGES = 1 << 22, 64


class RingWriter:
    """Writes frames into a new ring file.

    Args:
        path: the file; one that exists is replaced.
        stages: their names, in the order of `write`.
        slots: frames that the ring holds; 4096 are over two minutes at 30 Hz.

    Raises:
        InputError: too many stages, or names that do not fit.
    """

    def __init__(self, path: Path | str, stages: Sequence[str] = (), slots: int = 4096) -> None:
        names = "\n".join(stages).encode("utf-8")
        if len(names) > NAMES_BYTES or len(stages) > MOST_STAGES or "" in stages:
            raise InputError(f"{len(stages)} stages", f"names of {NAMES_BYTES} bytes together")
        if not 2 <= slots <= MOST_SLOTS:
            raise InputError(f"slots is {slots}", f"2 to {MOST_SLOTS}")
        self._slots, self._words = slots, 2 + len(stages)
        head = _HEAD.pack(MAGIC, slots, len(stages)) + names.ljust(NAMES_BYTES, b"\0")
        write_bytes(Path(path), head + bytes(slots * self._words * _WORD))
        with Path(path).open("r+b") as stream:
            self._map = mmap.mmap(stream.fileno(), 0)
        self._cells = memoryview(self._map)[_DATA:].cast("q")
        self._count = 0

    def write(self, latency_ns: int | None, stages_ns: Sequence[int] = ()) -> None:
        """Writes one frame; None is a dropped one. Stages that are left out become 0."""
        base = self._count % self._slots * self._words
        cells = self._cells
        cells[base] = 0
        cells[base + 1] = _DROPPED if latency_ns is None else latency_ns
        for index in range(self._words - 2):
            cells[base + 2 + index] = stages_ns[index] if index < len(stages_ns) else 0
        self._count += 1
        cells[base] = self._count

    def close(self) -> None:
        """Unmaps the file, which stays."""
        self._cells.release()
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class RingReader:
    """Reads the frames of a ring file as they come.

    Args:
        path: the file.

    Attributes:
        lost: frames that were overwritten before they were read.
        unreadable: frames with a time that is none: a latency of 0 or below, a stage below 0.
        file: which file it is; a pipeline that starts again makes another one of that name.

    Raises:
        InputError: the file cannot be read or is no ring.
    """

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        try:
            with path.open("rb") as stream:
                self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                self.file = os.fstat(stream.fileno())
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path}: {error}", "a ring file") from error
        self.stages = self._read_head(path)
        self._words = 2 + len(self.stages)
        self._cells = memoryview(self._map)[_DATA:].cast("q")
        self._next = 0
        self.lost = self.unreadable = 0

    def _read_head(self, path: Path) -> tuple[str, ...]:
        wrong = InputError(f"{path} is no ring of frames", "a file of RingWriter")
        if len(self._map) < _DATA:
            raise wrong
        magic, self._slots, stages = _HEAD.unpack_from(self._map)
        if magic != MAGIC or not 2 <= self._slots <= MOST_SLOTS or not 0 <= stages <= MOST_STAGES:
            raise wrong
        if len(self._map) != _DATA + self._slots * (2 + stages) * _WORD:
            raise wrong
        text = self._map[_HEAD.size : _DATA].rstrip(b"\0").decode("utf-8", "replace")
        names = tuple(text.split("\n")) if text else ()
        if len(names) != stages:
            raise wrong
        return names

    def poll(self) -> list[Sample]:
        """Returns the frames that came since the last call, in their order."""
        found: list[Sample] = []
        while True:
            base = self._next % self._slots * self._words
            number = self._cells[base]
            if number > self._next + 1:
                self._skip(number)
                continue
            if number != self._next + 1:
                return found
            values = list(self._cells[base + 1 : base + self._words])
            if self._cells[base] != number:
                continue
            self._next += 1
            if values[0] != _DROPPED and (values[0] < 1 or min(values) < 0):
                self.unreadable += 1
                continue
            found.append(_sample(values, self.stages))

    def _skip(self, number: int) -> None:
        """The writer has lapped the reader: goes on with the oldest frame that is surely whole."""
        oldest = max(self._next + 1, number - self._slots + self._slots // 8 + 1)
        self.lost += oldest - self._next
        self._next = oldest

    def close(self) -> None:
        """Unmaps the file."""
        self._cells.release()
        self._map.close()


def _sample(values: list[int], names: tuple[str, ...]) -> Sample:
    if values[0] == _DROPPED:
        return Sample(None)
    stages: Mapping[str, int] = dict(zip(names, values[1:], strict=True))
    return Sample(values[0], stages)
