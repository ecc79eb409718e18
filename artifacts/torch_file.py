"""Writes what `torch.save` writes, atomically and with errors that say what went wrong."""

import io
from pathlib import Path
from typing import Any

import torch

from artifacts.atomic import write_bytes


def write_torch(path: Path | str, content: Any) -> None:
    """Writes content as `torch.save` does; equal content, equal bytes.

    It is packed in memory: where a disk is full, PyTorch's own writer says no more than at which
    byte it stopped.

    Raises:
        InputError: the disk is full or the folder cannot be written; an old file is unharmed.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_bytes(path, buffer.getvalue())
