"""Turns what a user calls a model (.onnx, .pt2, weights) into a checked ONNX graph."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.file_kind import MODULE_SUFFIXES, printable, require_file
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import complete_shapes, load_before_plugins, load_onnx
from artifacts.onnx_inputs import one_sample_shapes, parse_input_shapes
from artifacts.onnx_metadata import read_input_spec
from artifacts.plugin_tail import PluginTail, join_plugins
from artifacts.recurrence import Recurrence
from framefit.training_samples import read_sample_shapes

if TYPE_CHECKING:
    import onnx

    from export.network_file import NetworkOptions

_log = logging.getLogger(__name__)
SUFFIXES = (".onnx", *MODULE_SUFFIXES)


@dataclass(frozen=True)
class OpenedModel:
    """A model that is ready to be worked on.

    Attributes:
        path: the file it came from.
        model: a checked ONNX model of static shapes.
        spec: how pixels become its input; None where the file does not say.
        sha256: digest of the file.
        plugins: operators of somebody's own that stand behind `model` in the file; often none.
    """

    path: Path
    model: "onnx.ModelProto"
    spec: InputSpec | None
    sha256: str
    plugins: "PluginTail | None" = None

    @property
    def sample_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of its inputs, batch 1 where that is free; empty where others are free."""
        shapes = one_sample_shapes(self.model)
        return shapes if all(map(all, shapes.values())) else {}

    def finish(self, model: "onnx.ModelProto") -> "onnx.ModelProto":
        """Returns what was made of the model, with the plugins behind it again."""
        return join_plugins(model, self.plugins)


@dataclass(frozen=True)
class ModelOptions:
    """How to open a model.

    Attributes:
        input_shapes: `--input-shape` options, see `parse_input_shapes`.
        factory: "package.module:function" that builds the network of plain weights.
        is_trusted: load a `.pt2` even where that could run code.
        recurrence: its states. Data are frames in order then, see `framefit.model_data`.
        data: what it will run on. Arrays say the shapes of inputs that neither `input_shapes` nor
            the file says.
        twin_shapes: of the inputs of the network that it teaches or is compared with, by name; they
            are its own where nothing else says them.
    """

    input_shapes: tuple[str, ...] = ()
    factory: str | None = None
    is_trusted: bool = False
    recurrence: Recurrence | None = None
    data: str | None = None
    twin_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def for_module(self) -> "NetworkOptions":
        """Returns the options of what opens a file of weights as a module."""
        from export.network_file import NetworkOptions

        return NetworkOptions(
            factory=self.factory,
            input_shapes=parse_input_shapes(self.input_shapes),
            is_trusted=self.is_trusted,
            sample_shapes=read_sample_shapes(self.data),
            twin_shapes=self.twin_shapes,
        )


def shapes_with_data(
    path: Path, given: Mapping[str, tuple[int, ...]], data: str | None
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that are given, and those that data say of an `.onnx`'s dynamic inputs."""
    if path.suffix.lower() != ".onnx":
        return dict(given)
    return complete_shapes(path, given, read_sample_shapes(data))


def open_model(path: Path, options: ModelOptions | None = None) -> OpenedModel:
    """Opens a model of any kind.

    Args:
        path: of one of `SUFFIXES`.
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
        shapes = parse_input_shapes(options.input_shapes)
        likely = {**options.twin_shapes, **read_sample_shapes(options.data)}
        model, plugins = load_before_plugins(path, input_shapes=shapes, likely_shapes=likely)
        if plugins is not None:
            _log.warning(plugins.describe())
    else:
        model, plugins = _export(path, options), None
    return OpenedModel(path, model, read_input_spec(model), digest, plugins)


def _export(path: Path, options: ModelOptions) -> "onnx.ModelProto":
    from export.network_file import open_network
    from export.to_onnx import export_onnx

    module, shapes, spec = open_network(path, options.for_module())
    with TemporaryDirectory(prefix="framefit-export-") as folder:
        target = Path(folder, "model.onnx")
        export_onnx(module, target, input_shape=shapes, input_spec=spec)
        return load_onnx(target)
