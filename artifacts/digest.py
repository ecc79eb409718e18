"""Digests: the name under which an artifact is known to the stages after it."""

import hashlib
from pathlib import Path


def sha256_bytes(content: bytes | memoryview) -> str:
    """Returns the SHA-256 of `content` as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sha256_file(path: Path | str) -> str:
    """Returns the SHA-256 of a file's content as 64 hexadecimal digits."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
