"""`.pt2` archives of torch.export; only a trusted one may run code when it is loaded."""

import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.file_kind import printable, require_file, sniff_kind
from artifacts.pt2_check import read_sample_inputs
from artifacts.state_dict import check_tensor
from artifacts.torch_file import load_weights_only


def load_exported_program(
    path: Path | str, *, is_trusted: bool = False
) -> tuple[nn.Module, dict[str, tuple[int, ...]]]:
    """Loads a `.pt2` archive of torch.export.

    Args:
        path: the archive.
        is_trusted: load it even where that could run code.

    Returns:
        the module, and the shape of each of its inputs by name in the order of its arguments.

    Raises:
        UnsafeFileError: loading could run code and `is_trusted` is not set.
        InputError: it is damaged, or has dynamic shapes.
    """
    path = require_file(path, "a .pt2 archive of torch.export")
    label = printable(path)
    if sniff_kind(path) != "zip":
        raise InputError(f"{label} is not a .pt2 archive", "what torch.export.save writes")
    if not is_trusted:
        for sample in read_sample_inputs(path):
            load_weights_only(io.BytesIO(sample), f"the sample inputs of {label}")
    try:
        program = torch.export.load(path)
    except Exception as error:
        raise InputError(
            f"cannot load {label}: {str(error).splitlines()[0][:200] if str(error) else error!r}",
            f"an archive that torch {torch.__version__} reads",
        ) from error
    shapes = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs:
            shapes[node.name] = _static_shape(node, label)
    for name, tensor in program.state_dict.items():
        check_tensor(name, tensor, label)
    return program.module(), shapes


def _static_shape(node: Any, label: str) -> tuple[int, ...]:
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or not all(type(size) is int for size in value.shape):
        raise InputError(
            f"input '{node.name}' of {label} is not a tensor of static shape",
            fix="export it again without dynamic_shapes",
        )
    return tuple(value.shape)
