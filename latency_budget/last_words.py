"""What another process writes to its standard error: its end is kept, however much it is."""

import fcntl
import os
import tempfile

_KEPT_BYTES = 1 << 16
_MOST_BYTES = 1 << 24


class LastWords:
    """A file without a name that a process gets as its standard error; closed by `close`."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        fcntl.fcntl(self._file, fcntl.F_SETFL, flags | os.O_APPEND)

    def fileno(self) -> int:
        """Returns the file's descriptor."""
        return self._file.fileno()

    def count_bytes(self) -> int:
        """Returns how much is in the file."""
        return os.fstat(self.fileno()).st_size

    def read_from(self, start: int = 0) -> str:
        """Returns what was written from a byte on; of much only the last 64 KiB."""
        start = max(start, self.count_bytes() - _KEPT_BYTES)
        return os.pread(self.fileno(), _KEPT_BYTES, start).decode("utf-8", "replace")

    def shorten(self) -> None:
        """Empties the file once it has 16 MiB, so that a flood of words fills no disk."""
        if self.count_bytes() > _MOST_BYTES:
            os.ftruncate(self.fileno(), 0)

    def close(self) -> None:
        """Frees the file."""
        self._file.close()
