"""From a network's file (`.pt`, `.safetensors`, `.pt2`) to ONNX."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import takewhile
from pathlib import Path

from torch import nn

from artifacts.checkpoint import (
    Checkpoint,
    build_from_factory,
    build_module,
    load_checkpoint_or_weights,
)
from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.exported_program import load_exported_program
from artifacts.file_kind import MODULE_SUFFIXES
from artifacts.input_spec import InputSpec
from artifacts.module_arguments import list_needed
from export.to_onnx import INPUT_NAME, export_onnx

_CHANNELS = 3

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """What the command line says about a network's file.

    Attributes:
        factory: "package.module:function" that builds the network; needed for plain weights.
        input_shapes: shape per input by name; the name "" means the only input.
        input_spec: how pixels become the input; None stores only what the file itself says.
        is_trusted: load a `.pt2` that could run code.
        sample_shapes: of one sample of each array of the data, batch of 1 first. They are the
            shapes of inputs that neither `input_shapes` nor the file says; those that a checkpoint
            was pruned with stand behind them.
        twin_shapes: of the network beside it that takes the same inputs; where nothing else says.
    """

    factory: str | None = None
    input_shapes: Mapping[str, tuple[int, ...]] | None = None
    input_spec: InputSpec | None = None
    is_trusted: bool = False
    sample_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    twin_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def export_network_file(
    path: Path | str,
    out: Path | str | None = None,
    options: NetworkOptions | None = None,
    *,
    notify: Callable[[str], None] | None = None,
) -> Path:
    """Exports a network's file to ONNX.

    Args:
        path: a framefit checkpoint, a plain state dict (`.pt`, `.safetensors`) or a `.pt2`.
        out: the `.onnx` file; None for the file's name with `.onnx`.
        options: factory, shapes, input spec and trust.
        notify: told in one line why the first exporter was not taken.

    Returns:
        the `.onnx` file.

    Raises:
        InputError: the file or an option is wrong, or the network cannot be exported.
        UnsafeFileError: reading the file could run code.
    """
    source = Path(path)
    options = options or NetworkOptions()
    target = Path(out) if out is not None else source.with_suffix(".onnx")
    if target.suffix != ".onnx":
        raise InputError(f"--out is {target}", "a file name that ends in .onnx")
    module, shapes, spec = open_network(source, options)
    return export_onnx(
        module,
        target,
        input_shape=shapes,
        input_spec=spec,
        metadata={"framefit.parent_sha256": sha256_file(source)},
        notify=notify,
    )


def open_network(
    source: Path, options: NetworkOptions
) -> tuple[nn.Module, Shapes, InputSpec | None]:
    """Opens a network's file without exporting it.

    Returns:
        the module, its inputs' shapes by name, and its input spec: the file's own, else the one of
        `options`, else None.

    Raises:
        InputError: the file or an option is wrong.
        UnsafeFileError: reading the file could run code.
    """
    suffix = source.suffix.lower()
    if suffix not in MODULE_SUFFIXES:
        expected = " or ".join(MODULE_SUFFIXES)
        raise InputError(f"{source} is no network that can be exported", expected)
    if suffix == ".pt2":
        module, own = load_exported_program(source, is_trusted=options.is_trusted)
        _refuse_other_shapes(source, own, options)
        return module, own, options.input_spec
    content = load_checkpoint_or_weights(source)
    if isinstance(content, Checkpoint):
        return _build_checkpoint(source, content, options)
    if options.factory is None:
        raise InputError(
            f"{source} holds weights only",
            "the function that builds the network",
            "name it with --factory package.module:function",
        )
    module = build_from_factory(options.factory, content, label=f"the weights of {source}")
    return module, _shapes(source, options, None, module), options.input_spec


def _build_checkpoint(
    source: Path, checkpoint: Checkpoint, options: NetworkOptions
) -> tuple[nn.Module, Shapes, InputSpec | None]:
    given = options.input_spec
    known = checkpoint.known_spec
    if given is not None and known is not None and given != known:
        raise InputError(
            f"{source} was trained with the input spec {known.to_json()}",
            "no other one",
            "leave --color, --pixel-scale, --mean, --std and --resize out",
        )
    label = f"the weights of {source}"
    module = build_module(checkpoint, factory=options.factory, label=label)
    shapes = _shapes(source, options, _own_shape(checkpoint), module, checkpoint.shapes)
    return module, shapes, known or given


def _own_shape(checkpoint: Checkpoint) -> tuple[int, ...] | None:
    size = (checkpoint.config.get("height"), checkpoint.config.get("width"))
    if not all(isinstance(extent, int) for extent in size):
        return None
    return (1, _CHANNELS, *(int(extent) for extent in size if extent is not None))


def _shapes(
    source: Path,
    options: NetworkOptions,
    own: tuple[int, ...] | None,
    module: nn.Module,
    stored: Shapes | None = None,
) -> Shapes:
    given = {name or INPUT_NAME: shape for name, shape in (options.input_shapes or {}).items()}
    needed = list_needed(module)
    is_partly_given = 0 < len(given) < len(needed) and set(given) <= set(needed)
    if given and not is_partly_given:
        return given
    if own is not None and not given:
        return {INPUT_NAME: own}
    others = (options.sample_shapes, stored or {}, options.twin_shapes)
    tries: Iterable[Mapping[str, tuple[int, ...]]]
    if is_partly_given:
        tries = (_match_arguments(module, {**known, **given}) for known in others)
    else:
        tries = (_match_arguments(module, options.sample_shapes), *others[1:])
    found = next(filter(None, tries), None)
    if not found:
        raise _refuse_unknown(source, needed, {*given, *options.sample_shapes})
    return dict(found)


def _refuse_unknown(source: Path, needed: Sequence[str], known: Collection[str]) -> InputError:
    """Returns the error for inputs whose shapes nothing says."""
    if len(needed) < 2:
        return InputError(
            f"{source} does not say the shape of its input",
            "a shape",
            "give it with --input-shape 1,3,HEIGHT,WIDTH",
        )
    missing = [name for name in needed if name not in known]
    return InputError(
        f"nothing says the shape of {', '.join(missing)}, of the inputs {', '.join(needed)} "
        f"of {source}",
        "a shape for each input",
        f"give it with {' '.join(f'--input-shape {name}=1,…' for name in missing)}",
    )


def _match_arguments(module: nn.Module, arrays: Mapping[str, tuple[int, ...]]) -> Shapes:
    """Returns the shapes of a module's arguments from the arrays that are called as they are.

    A single array is the single argument whatever it is called. Empty where an argument that has no
    default has no array, such as a state that frames are given without.
    """
    needed = list_needed(module)
    if len(arrays) == 1 and len(needed) <= 1:
        return {INPUT_NAME: next(iter(arrays.values()))}
    taken = list(takewhile(arrays.__contains__, signature(module.forward).parameters))
    if any(name not in taken for name in needed):
        return {}
    return {name: arrays[name] for name in taken}


def _refuse_other_shapes(source: Path, own: Shapes, options: NetworkOptions) -> None:
    """A `.pt2` was exported with its shapes and cannot take others."""
    for name, shape in (options.input_shapes or {}).items():
        known = own.get(name or next(iter(own), ""))
        if known != shape:
            raise InputError(
                f"--input-shape {','.join(str(dim) for dim in shape)} is not that of {source}",
                ", ".join(f"{key}={list(value)}" for key, value in own.items()),
                "leave --input-shape out",
            )
