"""A checkpoint as a safetensors file: its metadata say what builds the network of the weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import atomic_path
from artifacts.errors import InputError
from artifacts.file_kind import printable
from artifacts.safetensors_check import read_metadata

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT_KEY = "framefit.checkpoint"
"""The only key: the library writes several in an order that changes from run to run."""


def write_safetensors(
    path: Path, content: Mapping[str, Any], weights: "Mapping[str, Tensor]"
) -> None:
    """Writes weights with the rest of a checkpoint as metadata, atomically.

    Args:
        path: the file.
        content: builder, config, edits and whatever else JSON can hold.
        weights: by name; they may share memory.
    """
    from safetensors.torch import save_file

    own = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    metadata = {CHECKPOINT_KEY: json.dumps(content)}
    with atomic_path(path) as temporary:
        save_file(own, temporary, metadata=metadata)


def read_content(path: Path, data: bytes) -> dict[str, Any] | None:
    """Returns what `write_safetensors` got beside the weights; None in a file of weights alone.

    Args:
        path: the file, for the error.
        data: all its bytes, checked by `check_safetensors`.

    Raises:
        InputError: the metadata are damaged.
    """
    text = read_metadata(data).get(CHECKPOINT_KEY)
    if text is None:
        return None
    try:
        content = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"'{CHECKPOINT_KEY}' in {printable(path)} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"'{CHECKPOINT_KEY}' in {printable(path)} is no JSON object")
    return content
