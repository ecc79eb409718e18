"""Where the frames of a running pipeline come from: lines of JSON, or a ring file."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import IO

from artifacts.errors import InputError
from latency_budget.watch.ring_file import MAGIC, RingReader
from latency_budget.watch.sample import Sample, parse_line

STANDARD_INPUT = "-"
POLL_S = 0.05
MOST_LINE_CHARACTERS = 65_536


class Source:
    """Frames as they come.

    Attributes:
        unit: what it reads, in the singular.
        unreadable: lines that were no frame, frames of a ring with impossible times.
        lost: frames of a ring that were overwritten unread, or that the numbers of lines leave out.
        backward: lines whose number is not above that of the line before.
    """

    unit = "line"

    def __init__(self) -> None:
        self.unreadable = 0
        self.lost = 0
        self.backward = 0

    def to_dict(self) -> dict[str, int]:
        """Returns what was not counted as a frame, or maybe more than once, for JSON."""
        return {"unreadable": self.unreadable, "lost": self.lost, "backward": self.backward}

    def batches(self) -> Iterator[list[Sample]]:
        """Yields the frames that came; an empty list where there is none yet."""
        raise NotImplementedError

    def close(self) -> None:
        """Frees what it holds."""


class LineSource(Source):
    """A stream with a JSON object per line.

    Args:
        stream: text, read line by line.
        follow: wait for more at the end, as `tail -f` does.
        wait: called with seconds where there is nothing to read.
        path: of the stream; where another file takes that name (a rotated log) or it is cut, the
            new content is followed from its start.
    """

    def __init__(
        self,
        stream: IO[str],
        *,
        follow: bool = False,
        wait: Callable[[float], object] | None = None,
        path: Path | None = None,
    ) -> None:
        super().__init__()
        self._stream, self._follow, self._path = stream, follow, path
        self._wait = wait or Event().wait
        self._last: int | None = None

    def batches(self) -> Iterator[list[Sample]]:
        """Yields one frame at a time; a line that is not finished yet is waited for."""
        part = ""
        while True:
            text = self._stream.readline(MOST_LINE_CHARACTERS)
            part += text
            if part.endswith("\n") or (part and not self._follow and not text):
                yield self._parse(part)
                part = ""
            elif len(part) >= MOST_LINE_CHARACTERS:
                self.unreadable += 1
                part = ""
            elif not text:
                if not self._follow:
                    return
                if self._is_renewed():
                    self.unreadable += bool(part.strip())
                    part = ""
                    continue
                yield []
                self._wait(POLL_S)

    def _is_renewed(self) -> bool:
        """Goes to the start of the file's new content, if it has one."""
        found = _find(self._path) if self._path else None
        if self._path is None or found is None:
            return False
        held = os.fstat(self._stream.fileno())
        if not os.path.samestat(found, held):
            self._stream.close()
            self._stream = _open_lines(self._path)
            return True
        if held.st_size >= self._stream.tell():
            return False
        self._stream.seek(0)
        return True

    def _parse(self, line: str) -> list[Sample]:
        if not line.strip():
            return []
        try:
            sample = parse_line(line)
        except (ValueError, RecursionError):
            self.unreadable += 1
            return []
        if sample.number is not None and self._last is not None:
            self.lost += max(0, sample.number - self._last - 1)
            self.backward += sample.number <= self._last
        self._last = sample.number
        return [sample]

    def close(self) -> None:
        """Closes the stream, unless it is standard input."""
        if self._stream is not sys.stdin:
            self._stream.close()


class RingSource(Source):
    """A ring file.

    Args:
        path: the file.
        follow: wait for more; otherwise what lies in the ring now is all.
        wait: called with seconds where there is nothing to read.
    """

    unit = "record"

    def __init__(
        self, path: Path, *, follow: bool = True, wait: Callable[[float], object] | None = None
    ) -> None:
        super().__init__()
        self._path = path
        self._reader = RingReader(path)
        self._before = 0, 0
        self._follow = follow
        self._wait = wait or Event().wait

    def batches(self) -> Iterator[list[Sample]]:
        """Yields what came since the last look."""
        while True:
            found = self._reader.poll()
            self.lost = self._before[0] + self._reader.lost
            self.unreadable = self._before[1] + self._reader.unreadable
            yield found
            if not found:
                if not self._follow:
                    return
                if not self._is_renewed():
                    self._wait(POLL_S)

    def _is_renewed(self) -> bool:
        """Goes to the ring that a pipeline made when it started again, if it did."""
        found = _find(self._path)
        if found is None or os.path.samestat(found, self._reader.file):
            return False
        self._reader.close()
        self._before = self.lost, self.unreadable
        self._reader = RingReader(self._path)
        return True

    def close(self) -> None:
        """Unmaps the file."""
        self._reader.close()


def open_source(name: str, *, follow: bool) -> Source:
    """Opens `-` (standard input), a ring file, or a file with a JSON object per line.

    Raises:
        InputError: the file cannot be read.
    """
    if name == STANDARD_INPUT:
        return LineSource(_standard_input())
    path = Path(name)
    try:
        if not path.is_file() and not path.is_dir() and path.exists():
            return LineSource(_open_lines(path), follow=follow)  # a pipe is read only once
        with path.open("rb") as stream:
            is_ring = stream.read(len(MAGIC)) == MAGIC
        if is_ring:
            return RingSource(path, follow=follow)
        return LineSource(_open_lines(path), follow=follow, path=path)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", "a .jsonl or a ring file, or -"
        ) from error


def _find(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _open_lines(path: Path) -> IO[str]:
    return path.open(encoding="utf-8", errors="replace")


def _standard_input() -> IO[str]:
    if sys.stdin is None:
        raise InputError("standard input is closed", "frames on it, or the name of a file")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    return sys.stdin
