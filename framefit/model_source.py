"""Turns what a user calls a model (.onnx, .pt, .pt2, .safetensors) into a checked ONNX graph."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.file_kind import printable, require_file
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import INPUT_SPEC_KEY, load_onnx, parse_input_shapes, read_metadata

if TYPE_CHECKING:
    import onnx
    from torch import nn

CHECKPOINT_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
INPUT_NAME = "input"
SUFFIXES = (".onnx", *CHECKPOINT_SUFFIXES, ".pt2")


@dataclass(frozen=True)
class OpenedModel:
    """A model that is ready to be worked on.

    Attributes:
        path: the file it came from.
        model: a checked ONNX model of static shapes.
        spec: how pixels become its input; None where the file does not say.
        sha256: digest of the file.
    """

    path: Path
    model: "onnx.ModelProto"
    spec: InputSpec | None
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How to open a model.

    Attributes:
        input_shapes: `--input-shape` options, see `parse_input_shapes`.
        factory: "package.module:function" that builds the network of plain weights.
        is_trusted: load a `.pt2` even where that could run code.
    """

    input_shapes: tuple[str, ...] = ()
    factory: str | None = None
    is_trusted: bool = False


def open_model(path: Path, options: ModelOptions | None = None) -> OpenedModel:
    """Opens a model of any kind.

    Args:
        path: `.onnx`, `.pt`, `.pth`, `.safetensors` or `.pt2`.
        options: how.

    Raises:
        InputError: the file is not such a model, or an option is missing or does not apply.
        UnsafeFileError: the file could run code.
        MissingExtraError: it needs PyTorch, which is not installed.
    """
    options = options or ModelOptions()
    path = require_file(path, f"a model ({' '.join(SUFFIXES)})")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{printable(path)} has the suffix '{suffix}'", ", ".join(SUFFIXES))
    digest = sha256_file(path)
    if suffix == ".onnx":
        if options.factory:
            raise InputError("--factory was given for an .onnx file", "a checkpoint of weights")
        model = load_onnx(path, input_shapes=parse_input_shapes(options.input_shapes))
    else:
        model = _export(path, options)
    text = read_metadata(model).get(INPUT_SPEC_KEY)
    return OpenedModel(path, model, InputSpec.from_json(text) if text else None, digest)


def _export(path: Path, options: ModelOptions) -> "onnx.ModelProto":
    from export.to_onnx import export_onnx

    opened = open_module(path, options)
    if not opened.shapes:
        raise InputError(
            f"{printable(path)} does not say the shape of its input",
            "the shape",
            "give it with --input-shape 1,3,360,640",
        )
    with TemporaryDirectory(prefix="framefit-export-") as folder:
        target = Path(folder, "model.onnx")
        export_onnx(opened.module, target, input_shape=opened.shapes, input_spec=opened.spec)
        return load_onnx(target)


@dataclass(frozen=True)
class OpenedModule:
    """A PyTorch network: the module, its inputs' shapes by name, and its input spec if known."""

    module: "nn.Module"
    shapes: dict[str, tuple[int, ...]]
    spec: InputSpec | None = None


def open_module(path: Path, options: ModelOptions | None = None) -> OpenedModule:
    """Opens a checkpoint or `.pt2` as a module, for the stages that train or export.

    Raises:
        InputError: the file is not such a model, or an option is missing.
        UnsafeFileError: the file could run code.
    """
    options = options or ModelOptions()
    suffix = path.suffix.lower()
    if suffix not in (*CHECKPOINT_SUFFIXES, ".pt2"):
        raise InputError(
            f"{printable(path)} has the suffix '{suffix}'",
            f"{', '.join(CHECKPOINT_SUFFIXES)} or .pt2",
        )
    opened = _open_program(path, options) if suffix == ".pt2" else _open_checkpoint(path, options)
    given = parse_input_shapes(options.input_shapes)
    if not given:
        return opened
    if suffix == ".pt2" and list(given.values()) != list(opened.shapes.values()):
        raise InputError(
            f"--input-shape does not fit {printable(path)}",
            f"{', '.join(str(list(shape)) for shape in opened.shapes.values())}",
        )
    names = opened.shapes if suffix == ".pt2" else (name or INPUT_NAME for name in given)
    return replace(opened, shapes=dict(zip(names, given.values(), strict=True)))


def _open_program(path: Path, options: ModelOptions) -> OpenedModule:
    from artifacts.checkpoint import load_exported_program

    if options.factory:
        raise InputError("--factory was given for a .pt2 file", "a checkpoint of weights")
    module, shapes = load_exported_program(path, is_trusted=options.is_trusted)
    return OpenedModule(module, shapes)


def _open_checkpoint(path: Path, options: ModelOptions) -> OpenedModule:
    from artifacts.checkpoint import (
        Checkpoint,
        build_from_factory,
        build_module,
        load_checkpoint,
        load_checkpoint_or_weights,
    )

    content = load_checkpoint_or_weights(path) if options.factory else load_checkpoint(path)
    if isinstance(content, Checkpoint):
        module = build_module(content, factory=options.factory)
        return OpenedModule(module, _config_shape(content.config), content.input_spec)
    return OpenedModule(build_from_factory(options.factory or "", content), {})


def _config_shape(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    height, width = config.get("height"), config.get("width")
    if not isinstance(height, int) or not isinstance(width, int):
        return {}
    return {INPUT_NAME: (1, 3, height, width)}
