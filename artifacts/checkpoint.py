"""PyTorch checkpoints: the framefit/1 format and plain weights, read safely.

Whatever a file holds, reading it here runs no code of the file: tensors come through `torch_file`,
harmless objects beside them are read as nothing (`dropped_objects`), and the code that builds the
network is chosen by the command, not by the file.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from artifacts.atomic import write_json
from artifacts.builder import call_builder, find_builder
from artifacts.checkpoint_fields import ASSUMED_KEY, SHAPES_KEY, check_fields, read_shapes
from artifacts.dropped_objects import STAND_INS, holds_dropped
from artifacts.edits import apply_edits
from artifacts.errors import InputError, UnsafeFileError
from artifacts.file_kind import printable, require_file, sniff_kind
from artifacts.input_spec import InputSpec
from artifacts.safetensors_check import check_safetensors
from artifacts.safetensors_checkpoint import (
    read_content,
    write_plain_safetensors,
    write_safetensors,
)
from artifacts.state_dict import (
    WEIGHTS,
    check_weights,
    copy_weights,
    fit_weights,
    require_module,
)
from artifacts.torch_file import load_torch, write_torch
from artifacts.wrapped_weights import find_weights, name_state_dicts

FORMAT = "framefit/1"
_WHAT = "a PyTorch checkpoint"
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
    """Writes a checkpoint (`.pt` or `.safetensors`) atomically; equal content, equal bytes.

    Beside a `.safetensors` the edits lie in `.edits.json`, for code that reads the weights alone.
    """
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
        if checkpoint.edits:
            write_json(Path(path).with_suffix(".edits.json"), checkpoint.edits)
        return Path(path)
    content["state_dict"] = copy_weights(checkpoint.state_dict)
    write_torch(path, content)
    return Path(path)


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Writes plain weights (`.pt` or `.safetensors`) atomically."""
    if path.suffix == ".safetensors":
        write_plain_safetensors(path, weights)
    else:
        write_torch(path, dict(weights))


def require_checkpoint_name(out: Path) -> None:
    """Refuses a file name that says neither of the two forms of a checkpoint.

    Raises:
        InputError: it does not.
    """
    if out.suffix not in (".pt", ".safetensors"):
        raise InputError(f"--out is {out}", "a file name ending in .pt or .safetensors")


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
        content = load_torch(require_file(path, "the state of a training run"))
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
    content = load_torch(path, STAND_INS)
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


def build_module(
    checkpoint: Checkpoint, *, factory: str | None = None, label: str = WEIGHTS
) -> nn.Module:
    """Builds the network of a checkpoint and loads its weights.

    Args:
        checkpoint: what `load_checkpoint` returned.
        factory: a builder outside `perception` that the user named; it must be the checkpoint's.
            A user's own is called without arguments where the checkpoint has no `config`.
        label: what the weights are, for the errors.

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
    return fit_weights(apply_edits(module, checkpoint.edits), checkpoint.state_dict, label=label)


def build_from_factory(
    factory: str, state_dict: Mapping[str, Tensor], *, label: str = WEIGHTS
) -> nn.Module:
    """Builds a network with the user's own function, called without arguments, and its weights.

    Args:
        factory: `package.module:function`.
        state_dict: the weights by name.
        label: what they are, for the errors.

    Raises:
        InputError: the function cannot be imported or fails, or the weights do not fit.
    """
    built = call_builder(find_builder(factory, factory), factory)
    return fit_weights(built, state_dict, label=label)


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
