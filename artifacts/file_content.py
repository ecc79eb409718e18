"""Reading a whole file that a user names: it always ends, whatever the name stands for."""

import errno
import os
import select
import stat
from pathlib import Path

PIPE_WAIT_S = 60
"""How long a pipe may be silent, so that one without a writer does not stop a CI job for ever."""

_MAX_PIPE_BYTES = 1 << 28
_PART_BYTES = 1 << 20


def read_content(path: Path | str) -> bytes:
    """Returns what a file holds, or what comes out of a pipe (`--budget <(command)`).

    Raises:
        OSError: it cannot be read; it is a folder or a device such as /dev/zero; or a pipe holds
            more than 256 MiB or is silent for `PIPE_WAIT_S`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read()
        if stat.S_ISFIFO(mode):
            return _read_pipe(descriptor, str(path))
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        reason = os.strerror(number) if stat.S_ISDIR(mode) else "neither a file nor a pipe"
        raise OSError(number, reason, str(path))
    finally:
        os.close(descriptor)


def read_text(path: Path | str) -> str:
    """Returns what a file or a pipe holds as text, in UTF-8 with or without its mark.

    Raises:
        OSError: as `read_content`.
        UnicodeDecodeError: it is no such text.
    """
    return read_content(path).decode("utf-8-sig")


def _read_pipe(descriptor: int, path: str) -> bytes:
    poller, content = select.poll(), bytearray()
    poller.register(descriptor, select.POLLIN)
    while poller.poll(PIPE_WAIT_S * 1000):
        try:
            part = os.read(descriptor, _PART_BYTES)
        except BlockingIOError:  # Another reader was faster.
            continue
        if not part:
            return bytes(content)
        content += part
        if len(content) > _MAX_PIPE_BYTES:
            raise OSError(errno.EFBIG, "more than 256 MiB came out of the pipe", path)
    raise OSError(errno.ETIMEDOUT, f"nothing came out of the pipe for {PIPE_WAIT_S} s", path)
