"""A checkpoint as a safetensors file: its metadata say what builds the network of the weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import write_bytes
from artifacts.digest import sha256_bytes
from artifacts.errors import InputError
from artifacts.file_kind import printable
from artifacts.safetensors_check import read_metadata
from artifacts.state_dict import copy_weights

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT_KEY = "framefit.checkpoint"
"""The only key: the library writes several in an order that changes from run to run."""
DIGEST_KEY = "data_sha256"
"""Among the checkpoint's values: a `.pt` has checksums, safetensors have none of their own."""


def write_safetensors(
    path: Path, content: Mapping[str, Any], weights: "Mapping[str, Tensor]"
) -> None:
    """Writes weights with the rest of a checkpoint as metadata, atomically.

    Args:
        path: the file.
        content: builder, config, edits and whatever else JSON can hold.
        weights: by name; they may share memory.
    """
    from safetensors.torch import save

    own = copy_weights(weights)
    digest = sha256_bytes(_data_of(save(own)))  # The tensors' bytes do not depend on metadata.
    metadata = {CHECKPOINT_KEY: json.dumps({**content, DIGEST_KEY: digest})}
    write_bytes(path, save(own, metadata))


def write_plain_safetensors(path: Path, weights: "Mapping[str, Tensor]") -> None:
    """Writes weights alone, atomically; they may share memory."""
    from safetensors.torch import save

    write_bytes(path, save(copy_weights(weights)))


def read_content(path: Path, data: bytes) -> dict[str, Any] | None:
    """Returns what `write_safetensors` got beside the weights; None in a file of weights alone.

    Args:
        path: the file, for the error.
        data: all its bytes, checked by `check_safetensors`.

    Raises:
        InputError: the metadata are damaged, or the weights are not those that were written.
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
    recorded = content.pop(DIGEST_KEY, None)
    if recorded is not None and recorded != sha256_bytes(_data_of(data)):
        raise InputError(
            f"the weights of {printable(path)} are not those that were written",
            f"the SHA-256 {str(recorded)[:12]}…",
            "copy it again",
        )
    return content


def _data_of(data: bytes) -> memoryview:
    """Returns the tensors' bytes of a file, which follow its header."""
    return memoryview(data)[8 + int.from_bytes(data[:8], "little") :]
