"""Reads and writes ONNX models: what comes out of `load_onnx` is complete, safe and runnable."""

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.inliner import inline_local_functions

from artifacts.atomic import atomic_path
from artifacts.bfloat16_edges import widen_edges
from artifacts.contrib_pairs import write_standard_pairs
from artifacts.errors import InputError, UnsafeFileError, first_line
from artifacts.external_data import MAX_MODEL_BYTES, find_external, load_external_data
from artifacts.file_kind import printable, require_file, sniff_kind
from artifacts.free_batch import find_batches
from artifacts.fused_operators import write_standard_operators
from artifacts.graph_checks import (
    check_finite,
    check_graph,
    run_checker,
)
from artifacts.node_order import sort_nodes
from artifacts.onnx_inputs import (
    drop_weights_from_inputs,
    find_likely_shapes,
    fix_inputs,
    input_tensors,
    named_dims,
)
from artifacts.onnx_metadata import read_metadata
from artifacts.opset import MIN_IR_VERSION, TARGET_OPSET, require_runnable, upgrade_opset
from artifacts.pair_constants import check_scales
from artifacts.plugin_tail import PluginTail, cut_plugins
from artifacts.shape_inference import infer_shapes
from artifacts.sparse_weights import store_densely
from artifacts.standard_domain import name_standard_domain

_WHAT = "an ONNX model"
_HINTS = {
    "zip": "a zip archive, as PyTorch checkpoints are; give it the name it had (.pt, .pt2)",
    "pickle": "a Python pickle, which could run code",
    "tar": "a tar archive",
    "hdf5": "an HDF5 file (Keras); export it to ONNX",
    "tflite": "a TensorFlow Lite model; export the network to ONNX instead",
    "safetensors": "a safetensors file; give it the suffix .safetensors and name its --factory",
    "text": "a text file",
    "lfs pointer": "a Git LFS pointer; run 'git lfs pull'",
}


def load_onnx(
    path: Path | str, *, input_shapes: dict[str, tuple[int, ...]] | None = None
) -> onnx.ModelProto:
    """Loads a model and checks everything that later stages rely on.

    Args:
        path: the `.onnx` file; external data must lie beside it.
        input_shapes: shape per input name, in place of dynamic dimensions or of those that the
            file states; the name "" stands for the only input. A batch that is free without one
            becomes 1.

    Returns:
        a self-contained model of opset 17 or newer with static inputs, inferred shapes and finite
        weights; initializers are not listed as inputs.

    Raises:
        InputError: the file is not such a model, or an input is dynamic elsewhere than in its batch
            and has no given shape.
        UnsafeFileError: the file is a pickle, or its external data points elsewhere.
    """
    model, label = _read(path)
    return _complete(model, label, input_shapes or {})


def check_onnx(
    model: onnx.ModelProto, *, likely_shapes: Mapping[str, tuple[int, ...]] | None = None
) -> onnx.ModelProto:
    """Returns what `load_onnx` would of a model's file; the model is not changed.

    Args:
        model: the model.
        likely_shapes: of inputs whose shapes nothing else says, see `fix_inputs`.

    Raises:
        InputError: as there.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    name_standard_domain(copy)
    sort_nodes(copy.graph)
    return _complete(copy, Path("the model"), {}, likely_shapes)


def load_before_plugins(
    path: Path | str,
    *,
    input_shapes: dict[str, tuple[int, ...]] | None = None,
    likely_shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[onnx.ModelProto, PluginTail | None]:
    """Loads a model as `load_onnx` does, but for operators of somebody's own at its end.

    Args:
        path: see `load_onnx`.
        input_shapes: see `load_onnx`.
        likely_shapes: of inputs whose shapes nothing else says, see `fix_inputs`.

    Returns:
        the model up to the tensors that these operators read, which are outputs of it; and what
        was cut off, to be put back by `artifacts.plugin_tail.join_plugins`; None if nothing was.
    """
    model, label = _read(path)
    tail = cut_plugins(model)
    return _complete(model, label, input_shapes or {}, likely_shapes), tail


def _read(path: Path | str) -> tuple[onnx.ModelProto, Path]:
    """Returns a file's model with its external data, and the file's name for messages."""
    path = require_file(path, _WHAT)
    model = _parse(path)
    load_external_data(model, path, path.stat().st_size)
    name_standard_domain(model)
    sort_nodes(model.graph)
    return model, Path(printable(path))


def _complete(
    model: onnx.ModelProto,
    label: Path,
    input_shapes: dict[str, tuple[int, ...]],
    likely_shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> onnx.ModelProto:
    """Returns a model checked, static and with inferred shapes; it is edited."""
    check_graph(model, label)
    check_scales(model.graph, label)
    check_finite(model.graph, label)
    store_densely(model.graph, label)
    model.ir_version = max(model.ir_version, MIN_IR_VERSION)
    drop_weights_from_inputs(model.graph)
    if model.functions:
        model = inline_local_functions(model)
    model = write_standard_pairs(model, label)
    write_standard_operators(model)
    _require_tensor_outputs(model.graph, label)
    widen_edges(model.graph, label)
    stated = input_tensors(model)
    fix_inputs(model.graph, input_shapes, label, likely_shapes)
    sizes = [
        pair
        for name, tensor in input_tensors(model).items()
        for pair in zip_longest(stated[name].shape, tensor.shape, fillvalue=0)
    ]
    if any(before != now for before, now in sizes):
        _forget_output_sizes(model.graph)
    del model.graph.value_info[:]
    run_checker(model, label)
    if any(before not in (0, now) for before, now in sizes):
        require_runnable(model, label)
    model = upgrade_opset(_infer_shapes(model, label), label)
    _name_nodes(model.graph)
    return _infer_shapes(model, label)


def save_onnx(model: onnx.ModelProto, path: Path | str, *, metadata: dict[str, str]) -> Path:
    """Writes a model as one self-contained file, atomically.

    Args:
        model: the model, whose weights it contains.
        path: the file to write.
        metadata: entries of `metadata_props` to add or replace.

    Returns:
        the path.

    Raises:
        InputError: the path cannot be written, or the model is larger than 2 GiB.
    """
    path = Path(path)
    onnx.helper.set_model_props(model, {**read_metadata(model), **metadata})
    if model.ByteSize() > MAX_MODEL_BYTES:
        raise InputError(f"the model for {path} is larger than 2 GiB", "a model below 2 GiB")
    with atomic_path(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))
    return path


def find_free_batches(path: Path) -> dict[str, str]:
    """Returns the inputs of a model's file whose batch is free, and what the file calls it."""
    graph = read_as_stored(path).graph
    drop_weights_from_inputs(graph)
    free = find_batches(named_dims(graph.input))
    return {
        value.name: value.type.tensor_type.shape.dim[0].dim_param or "batch"
        for value in graph.input
        if value.name in free
    }


def named_shapes(path: Path) -> dict[str, list[int | str]]:
    """Returns the shapes of a file's inputs, with the names of what is free."""
    graph = read_as_stored(path).graph
    drop_weights_from_inputs(graph)
    return named_dims(graph.input)


def complete_shapes(
    path: Path, given: Mapping[str, tuple[int, ...]], likely: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that are given for a file's inputs, and likely ones of other dynamic ones.

    Args:
        path: the `.onnx` file.
        given: see `load_onnx`.
        likely: see `artifacts.onnx_inputs.fix_inputs`.
    """
    if not likely or "" in given:
        return dict(given)
    graph = read_as_stored(path).graph
    drop_weights_from_inputs(graph)
    return {**find_likely_shapes(graph, likely, taken=given), **given}


def read_as_stored(path: Path) -> onnx.ModelProto:
    """Returns the model of a file as it stands there: unchecked, and without its external data.

    Raises:
        InputError: the file is no ONNX model, whatever its suffix.
    """
    return _parse(require_file(path, _WHAT))


def has_weights_beside(path: Path) -> bool:
    """Returns whether an `.onnx` file keeps weights in others, which its digest does not cover.

    Raises:
        InputError: see `read_as_stored`.
    """
    return path.suffix.lower() == ".onnx" and bool(find_external(read_as_stored(path)))


def _require_tensor_outputs(graph: onnx.GraphProto, path: Path) -> None:
    for value in graph.output:
        kind = value.type.WhichOneof("value")
        if kind not in (None, "tensor_type"):
            raise InputError(
                f"{path}: output '{value.name}' is a {str(kind).removesuffix('_type')}",
                "a tensor",
                "let the network return its parts as outputs of their own",
            )


def _parse(path: Path) -> onnx.ModelProto:
    size_bytes = path.stat().st_size
    kind = sniff_kind(path)
    label = printable(path)
    if kind in _HINTS:
        error = UnsafeFileError if kind == "pickle" else InputError
        raise error(f"{label} is {_HINTS[kind]}", _WHAT)
    if size_bytes > MAX_MODEL_BYTES:
        raise InputError(f"{label} is larger than 2 GiB, which protobuf cannot hold", _WHAT)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise InputError(
            f"{label} is not a complete ONNX model (truncated or damaged)",
            _WHAT,
            "copy or export it again",
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise InputError(
            f"{label} is not a complete ONNX model ({size_bytes} bytes without a graph or opset)",
            _WHAT,
            "copy or export it again",
        )
    return model


def _forget_output_sizes(graph: onnx.GraphProto) -> None:
    """Leaves the outputs' sizes to shape inference; it does not always find their rank."""
    for value in graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Gives every node a name of its own, so that reports and settings can point at it."""
    taken: set[str] = set()
    for index, node in enumerate(graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.name or node.op_type}_{index}"
        while node.name in taken:
            node.name += "_"
        taken.add(node.name)


def _infer_shapes(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    try:
        return infer_shapes(model, is_strict=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise InputError(
            f"the shapes of {path} contradict each other: {first_line(error)}",
            "a model whose shapes fit",
            f"export it again with opset {TARGET_OPSET} or newer",
        ) from error
