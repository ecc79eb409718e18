"""Reads and writes what `torch.save` writes: safely, atomically, and with errors that say why.

Reading runs no code of the file: tensors come through `torch.load(weights_only=True)`, once and
without a second try.
"""

import io
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from artifacts.atomic import write_bytes
from artifacts.dropped_objects import resave_hint
from artifacts.errors import InputError, UnavailableError, UnsafeFileError, first_line
from artifacts.file_kind import printable, sniff_kind
from artifacts.zip_check import check_torch_zip, refuse_compressed

SAFE_TORCH = (2, 6)
_WHAT = "a PyTorch checkpoint"
_PLAIN_FIX = "save model.state_dict() instead of the model"
_FORBIDDEN_GLOBAL = re.compile(r"GLOBAL ([\w.]+)|Unsupported (?:class|operand)[: ]+([\w.]+)")


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


def load_torch(path: Path, stand_ins: Mapping[str, type] = MappingProxyType({})) -> Any:
    """Loads a checkpoint in PyTorch's zip format; every other kind of file is refused.

    Args:
        path: the file.
        stand_ins: what globals of Python are read as, by name.
    """
    label = printable(path)
    _require_safe_torch()
    kind = sniff_kind(path)
    if kind in ("pickle", "tar"):
        raise UnsafeFileError(
            f"{label} is a {kind} file, which could run code when it is read",
            "a checkpoint in PyTorch's zip format",
            resave_hint(str(path)),
        )
    if kind != "zip":
        raise InputError(f"{label} is {_KINDS.get(kind, 'not a checkpoint')}", _WHAT)
    members = check_torch_zip(path)
    if "constants.pkl" in members or any(name.startswith("code/") for name in members):
        raise UnsafeFileError(
            f"{label} is a TorchScript archive, which contains code",
            "a checkpoint of weights",
            "save model.state_dict() with torch.save and name the network with --factory",
        )
    if any(name.startswith("models/") for name in members):
        raise InputError(f"{label} is an archive of torch.export", fix="give it the suffix .pt2")
    refuse_compressed(path)
    with path.open("rb") as stream:
        return load_weights_only(stream, label, stand_ins, resave_hint(str(path)))


def _require_safe_torch() -> None:
    """Below 2.6, `weights_only=True` could be made to run code (CVE-2025-32434)."""
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) < SAFE_TORCH:
        raise UnavailableError(
            f"torch {torch.__version__} can run code of a checkpoint even with weights_only",
            f"torch {SAFE_TORCH[0]}.{SAFE_TORCH[1]} or newer",
            "install it with: pip install 'framefit[torch]'",
        )


_KINDS = {
    "onnx": "an ONNX model; give it the suffix .onnx",
    "text": "a text file",
    "lfs pointer": "a Git LFS pointer; run 'git lfs pull'",
    "safetensors": "a safetensors file; give it the suffix .safetensors and name its --factory",
    "hdf5": "an HDF5 file (Keras)",
}


def load_weights_only(
    stream: Any,
    label: str,
    stand_ins: Mapping[str, type] = MappingProxyType({}),
    fix: str = _PLAIN_FIX,
) -> Any:
    """Loads tensors and plain containers; anything else is refused, without a second try."""
    allowed: list[Any] = [(kind, name) for name, kind in stand_ins.items()]
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(allowed):
            warnings.simplefilter("ignore")
            return torch.load(stream, map_location="cpu", weights_only=True)
    except Exception as error:
        found = _FORBIDDEN_GLOBAL.search(str(error))
        if found or "eights only load failed" in str(error):
            name = f" ('{found[1] or found[2]}')" if found else ""
            raise UnsafeFileError(
                f"{label} holds Python objects{name}, which could run code when read",
                "a file with nothing but tensors and plain values",
                fix,
            ) from error
        raise InputError(f"{label} cannot be read: {first_line(error)}", _WHAT) from error
