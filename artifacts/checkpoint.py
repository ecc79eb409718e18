"""PyTorch checkpoints: the framefit/1 format, plain weights, and `.pt2` archives, all read safely.

Whatever a file holds, reading it here runs no code of the file: tensors come through
`torch.load(weights_only=True)`, once and without a second try, harmless objects beside them are
read as nothing (`dropped_objects`), and the code that builds the network is chosen by the command,
not by the file.
"""

import io
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from artifacts.builder import call_builder, find_builder
from artifacts.checkpoint_fields import ASSUMED_KEY, SHAPES_KEY, check_fields, read_shapes
from artifacts.dropped_objects import STAND_INS, holds_dropped, resave_hint
from artifacts.edits import apply_edits
from artifacts.errors import InputError, UnavailableError, UnsafeFileError, first_line
from artifacts.file_kind import printable, require_file, sniff_kind
from artifacts.input_spec import InputSpec
from artifacts.pt2_check import read_sample_inputs
from artifacts.safetensors_check import check_safetensors
from artifacts.safetensors_checkpoint import read_content, write_safetensors
from artifacts.state_dict import (
    check_tensor,
    check_weights,
    fit_weights,
    require_module,
)
from artifacts.torch_file import write_torch
from artifacts.wrapped_weights import find_weights, name_state_dicts
from artifacts.zip_check import check_torch_zip, refuse_compressed

FORMAT = "framefit/1"
SAFE_TORCH = (2, 6)
_WHAT = "a PyTorch checkpoint"
_PLAIN_FIX = "save model.state_dict() instead of the model"
_FORBIDDEN_GLOBAL = re.compile(r"GLOBAL ([\w.]+)|Unsupported (?:class|operand)[: ]+([\w.]+)")
_KEYS = ("format", "builder", "config", "edits", "input_spec", "state_dict")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A network as it is stored: how to build it, and its weights.

    Attributes:
        builder: "package.module:function", called with `config`.
        config: the builder's argument.
        edits: structural changes to replay on the built module, in order.
        input_spec: how pixels become the network's input.
        state_dict: the weights by name.
        shapes: of the inputs that it was written with, by name; empty where `config` says them.
        is_spec_assumed: nothing said how pixels become the input when it was written.
    """

    builder: str
    config: dict[str, Any]
    input_spec: InputSpec
    state_dict: dict[str, Tensor]
    edits: list[dict[str, Any]] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    is_spec_assumed: bool = False

    @property
    def known_spec(self) -> InputSpec | None:
        """The input spec where something said it."""
        return None if self.is_spec_assumed else self.input_spec


def save_checkpoint(path: Path | str, checkpoint: Checkpoint) -> Path:
    """Writes a checkpoint (`.pt` or `.safetensors`) atomically; equal content, equal bytes."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "builder": checkpoint.builder,
        "config": checkpoint.config,
        "edits": checkpoint.edits,
        "input_spec": asdict(checkpoint.input_spec),
    }
    if checkpoint.shapes:
        content[SHAPES_KEY] = {name: list(shape) for name, shape in checkpoint.shapes.items()}
    if checkpoint.is_spec_assumed:
        content[ASSUMED_KEY] = True
    if Path(path).suffix == ".safetensors":
        write_safetensors(Path(path), content, checkpoint.state_dict)
        return Path(path)
    content["state_dict"] = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in checkpoint.state_dict.items()
    }
    write_torch(path, content)
    return Path(path)


def load_checkpoint(path: Path | str) -> Checkpoint:
    """Reads a framefit/1 checkpoint.

    Raises:
        UnsafeFileError: the file could run code or is ambiguous.
        InputError: it is damaged, of another format, or has weights that are not finite.
    """
    label = printable(path)
    content = load_checkpoint_or_weights(path)
    if isinstance(content, Checkpoint):
        return content
    raise InputError(
        f"checkpoint {label} is a plain state dict",
        f"the format {FORMAT}",
        "name the function that builds its network: --factory package.module:function "
        "--input-shape 1,3,360,640",
    )


def load_state_dict(path: Path | str) -> dict[str, Tensor]:
    """Reads the weights of a `.pt` or `.safetensors` file; see `load_checkpoint_or_weights`."""
    content = load_checkpoint_or_weights(path)
    return content.state_dict if isinstance(content, Checkpoint) else content


def load_run_state(path: Path) -> dict[str, Any]:
    """Reads what a training run left to go on from: tensors and plain values, checksums held.

    Raises:
        InputError: it is damaged, or something else.
    """
    try:
        content = _load_zip(require_file(path, "the state of a training run"))
    except InputError as error:
        raise InputError(
            f"{printable(path)} is not the whole state of a training run: {error.what}",
            fix="delete it to start anew",
        ) from error
    if not isinstance(content, dict):
        raise InputError(
            f"{printable(path)} is not the state of a training run", fix="delete it to start anew"
        )
    return content


def load_checkpoint_or_weights(path: Path | str) -> Checkpoint | dict[str, Tensor]:
    """Reads a `.pt` or `.safetensors` file, told apart by their content.

    Returns:
        a checkpoint, or weights by name where the file holds only those; common wrappers
        (`{"state_dict": …}`) are taken off; for prefixes of names see `fit_weights`.

    Raises:
        UnsafeFileError: the file could run code or is ambiguous.
        InputError: it is damaged, has neither, or weights that are not finite.
    """
    path = require_file(path, _WHAT)
    label = printable(path)
    content = _read_file(path, label)
    if isinstance(content, Checkpoint):
        return content
    weights = find_weights(content)
    if not weights:
        several = name_state_dicts(content)
        fix = "what is no tensor in it is not read: save its weights as tensors" * holds_dropped(
            content
        )
        if several:
            fix = f"it holds several ({', '.join(several)}): save the one to use alone"
        raise InputError(
            f"checkpoint {label} is of another format",
            f"the format {FORMAT}, or a state dict (a dictionary of tensors)",
            fix,
        )
    return check_weights(weights, label)


def find_checkpoint(path: Path | str) -> Checkpoint | None:
    """Reads a file as `load_checkpoint_or_weights` does, but for weights alone.

    Returns:
        a checkpoint; None where the file holds weights, which are not looked at.

    Raises:
        UnsafeFileError: the file could run code or is ambiguous.
        InputError: it is damaged.
    """
    path = require_file(path, _WHAT)
    content = _read_file(path, printable(path))
    return content if isinstance(content, Checkpoint) else None


def _read_file(path: Path, label: str) -> Any:
    """Returns the checkpoint that a file holds, else its whole content."""
    if sniff_kind(path) == "safetensors" or path.suffix == ".safetensors":
        weights, rest = _load_safetensors(path)
        return weights if rest is None else _read_checkpoint({**rest, "state_dict": weights}, label)
    content = _load_zip(path, STAND_INS)
    if isinstance(content, dict) and isinstance(content.get("format"), str):
        return _read_checkpoint(content, label)
    return content


def _read_checkpoint(content: dict[str, Any], label: str) -> Checkpoint:
    if content.get("format") != FORMAT:
        raise InputError(
            f"checkpoint {label} has the format {content.get('format')!r}",
            FORMAT,
            "load it with the version of framefit that wrote it",
        )
    missing = [key for key in _KEYS if key not in content]
    if missing:
        raise InputError(f"checkpoint {label} has no '{missing[0]}'", ", ".join(_KEYS))
    check_fields(content, label)
    return Checkpoint(
        builder=content["builder"],
        config=content["config"],
        edits=content["edits"],
        input_spec=InputSpec.from_dict(dict(content["input_spec"])),
        state_dict=check_weights(content["state_dict"], label),
        shapes=read_shapes(content.get(SHAPES_KEY, {}), label),
        is_spec_assumed=content.get(ASSUMED_KEY) is True,
    )


def build_module(checkpoint: Checkpoint, *, factory: str | None = None) -> nn.Module:
    """Builds the network of a checkpoint and loads its weights.

    Args:
        checkpoint: what `load_checkpoint` returned.
        factory: a builder outside `perception` that the user named; it must be the checkpoint's.
            A user's own is called without arguments where the checkpoint has no `config`.

    Returns:
        the network in evaluation mode.

    Raises:
        UnsafeFileError: the checkpoint names a builder that is neither in `perception` nor given.
        InputError: the builder fails, or the edits or the weights do not fit it.
    """
    build = find_builder(checkpoint.builder, factory)
    is_users = not checkpoint.builder.startswith("perception.")
    arguments = () if is_users and not checkpoint.config else (checkpoint.config,)
    module = require_module(call_builder(build, checkpoint.builder, *arguments))
    return fit_weights(apply_edits(module, checkpoint.edits), checkpoint.state_dict)


def build_from_factory(factory: str, state_dict: Mapping[str, Tensor]) -> nn.Module:
    """Builds a network with the user's own function, called without arguments, and its weights.

    Raises:
        InputError: the function cannot be imported or fails, or the weights do not fit.
    """
    return fit_weights(call_builder(find_builder(factory, factory), factory), state_dict)


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
            _load_weights_only(io.BytesIO(sample), f"the sample inputs of {label}")
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


def _load_zip(path: Path, stand_ins: Mapping[str, type] = MappingProxyType({})) -> Any:
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
        return _load_weights_only(stream, label, stand_ins, resave_hint(str(path)))


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


def _load_weights_only(
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


def _load_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Returns the weights, and the rest of a checkpoint where the file is one."""
    from safetensors.torch import load

    kind = sniff_kind(path)
    if kind in ("zip", "pickle"):
        raise UnsafeFileError(f"{printable(path)} is a {kind} file", "a safetensors file")
    content = path.read_bytes()
    check_safetensors(path, content)
    try:
        weights = dict(load(content))
    except Exception as error:
        raise InputError(f"{printable(path)} cannot be read: {error}", "safetensors") from error
    return weights, read_content(path, content)
