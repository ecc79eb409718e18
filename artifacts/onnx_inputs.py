"""The inputs of an ONNX model: their shapes and types, and the shapes that a user gives them."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import onnx

from artifacts.byte_inputs import read_byte_inputs
from artifacts.errors import InputError
from artifacts.free_batch import find_batches
from artifacts.onnx_metadata import read_metadata
from artifacts.samples import TensorShape

_EXAMPLE_SHAPE = (1, 3, 360, 640)
_log = logging.getLogger(__name__)


def parse_input_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Reads `--input-shape` options: `1,3,360,640`, or `NAME=1,3,360,640` once per input.

    Returns:
        shape per input name; the name "" stands for the only input.

    Raises:
        InputError: a text is not a list of positive whole numbers.
    """
    shapes = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        sizes = [item.strip() for item in numbers.replace("x", ",").split(",")]
        is_valid = all(item.isascii() and item.isdigit() and 0 < len(item) < 10 for item in sizes)
        if not is_valid or any(int(item) == 0 for item in sizes):
            raise InputError(
                f"--input-shape is '{text}'", "positive whole numbers such as 1,3,360,640"
            )
        shapes[name] = tuple(int(item) for item in sizes)
    return shapes


def input_tensors(model: onnx.ModelProto) -> dict[str, TensorShape]:
    """Returns shape and type of each network input; a dynamic dimension is 0.

    Weights that the graph lists among its inputs, as old exporters do, are none.

    Raises:
        InputError: an input is no tensor, or of a type that ONNX does not know.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = (value for value in model.graph.input if value.name not in weights)
    in_bytes = read_byte_inputs(read_metadata(model))
    return {
        value.name: TensorShape(_dims(value), _type_name(value), value.name in in_bytes)
        for value in inputs
    }


def one_sample_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each network input, its batch 1 where that is all that is free."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    free = find_batches(named_dims(inputs))
    return {
        value.name: (1, *_dims(value)[1:]) if value.name in free else _dims(value)
        for value in inputs
    }


def drop_weights_from_inputs(graph: onnx.GraphProto) -> None:
    """Up to IR version 3 every weight was listed as an input as well."""
    weights = {tensor.name for tensor in graph.initializer}
    kept = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(kept)


def named_dims(values: Iterable[onnx.ValueInfoProto]) -> dict[str, list[int | str]]:
    """Returns the inputs' shapes, with the names of what is free."""
    return {
        value.name: [
            dim.dim_value if dim.dim_value > 0 else dim.dim_param
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in values
    }


def fix_inputs(
    graph: onnx.GraphProto,
    given: Mapping[str, tuple[int, ...]],
    path: Path,
    likely: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Writes shapes into the inputs.

    Args:
        graph: whose inputs they are; it is edited.
        given: shape per input name, in place of whatever the file states; the name "" stands for
            the only input.
        path: of the file, for messages.
        likely: of arrays that the network will run on, a batch of one first, or of a network beside
            it, by name; a single one is that of a single input whatever its name. They are the
            shapes of inputs that neither `given` nor the file says, where they fit. A warning names
            these.

    Raises:
        InputError: a shape does not fit an input, or is missing.
    """
    names = [value.name for value in graph.input]
    if not names:
        raise InputError(f"{path} has no input", "a network with at least one input")
    if set(given) == {""} and len(names) == 1:
        given = {names[0]: given[""]}
    for name in given:
        if name not in names:
            raise InputError(
                f"--input-shape names no input for '{name}'", f"NAME=… with {', '.join(names)}"
            )
    free = find_batches(named_dims(graph.input))
    found = find_likely_shapes(graph, likely or {}, taken=given)
    for value in graph.input:
        if not value.type.HasField("tensor_type"):
            raise InputError(f"input '{value.name}' of {path} is not a tensor")
        named = f"{value.name}=" if len(names) > 1 else ""
        shape = given.get(value.name)
        if shape is None and value.name in free:
            shape = (1, *_dims(value)[1:])
        _fix_input(value, shape or found.get(value.name), path, named)


def find_likely_shapes(
    graph: onnx.GraphProto,
    likely: Mapping[str, tuple[int, ...]],
    taken: Collection[str] = (),
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that inputs have by what they will run on; a warning names each.

    Args:
        graph: whose inputs they are, weights left out.
        likely: see `fix_inputs`.
        taken: inputs whose shapes are known otherwise. So are those of which only the batch is
            free.
    """
    values = [value for value in graph.input if value.type.HasField("tensor_type")]
    known = {*taken, *find_batches(named_dims(values))}
    is_only = len(graph.input) == 1
    found = {
        value.name: _find_likely(value, likely, is_only=is_only)
        for value in values
        if value.name not in known
    }
    return {name: shape for name, shape in found.items() if shape is not None}


def suggest_shape(sizes: Sequence[int]) -> str:
    """Returns a shape for `--input-shape`: a batch of 1, and 360 x 640 where pictures are open.

    Args:
        sizes: 0 where one is open, channels of pictures first or last; none where all is unknown.
    """
    usual: Sequence[int] = (1,) * len(sizes)
    if len(sizes) in (0, len(_EXAMPLE_SHAPE)):
        is_last = bool(sizes and sizes[3] and not sizes[1])
        usual = (1, 360, 640, 3) if is_last else _EXAMPLE_SHAPE
    return ",".join(
        str(size or other) for size, other in zip(sizes or [0] * len(usual), usual, strict=True)
    )


def _find_likely(
    value: onnx.ValueInfoProto, likely: Mapping[str, tuple[int, ...]], *, is_only: bool
) -> tuple[int, ...] | None:
    """Returns the shape of a dynamic input that its data have; None where they have none that fits.

    What has no batch axis (points, cameras), or brings one of its own, fits without the one of
    `likely`.
    """
    stated = _dims(value)
    if not stated or all(stated):
        return None
    sole = next(iter(likely.values()), ()) if is_only and len(likely) == 1 else ()
    found = likely.get(value.name, sole)
    for shape in (found, found[1:]):
        if len(shape) == len(stated) and all(shape) and _may_be(stated, shape):
            _log.warning(
                "input '%s' is dynamic and taken as %s (--input-shape for another shape)",
                value.name,
                list(shape),
            )
            return shape
    return None


def _may_be(stated: Sequence[int], shape: Sequence[int]) -> bool:
    return all(own in (0, size) for own, size in zip(stated, shape, strict=True))


def _fix_input(
    value: onnx.ValueInfoProto, shape: tuple[int, ...] | None, path: Path, named: str
) -> None:
    current = _dims(value)
    is_ranked = value.type.tensor_type.HasField("shape")
    if shape is None:
        if is_ranked and 0 not in current:
            return
        shown = [dim.dim_param or dim.dim_value or "?" for dim in value.type.tensor_type.shape.dim]
        raise InputError(
            f"input '{value.name}' of {path} has the dynamic shape "
            f"[{', '.join(str(size) for size in shown)}]",
            "a static shape",
            f"fix it with --input-shape {named}{suggest_shape(current)}",
        )
    if is_ranked and len(shape) != len(current):
        raise InputError(
            f"--input-shape {','.join(map(str, shape))} does not fit input '{value.name}' "
            f"of {path}",
            f"{[size or 'any' for size in current]}",
        )
    value.CopyFrom(
        onnx.helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape)
    )


def _dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    shape = value.type.tensor_type.shape
    return tuple(dim.dim_value if dim.dim_value > 0 else 0 for dim in shape.dim)


def _type_name(value: onnx.ValueInfoProto) -> str:
    kind = value.type.tensor_type.elem_type
    if kind not in onnx.TensorProto.DataType.values() or kind == onnx.TensorProto.UNDEFINED:
        raise InputError(
            f"input '{value.name}' has elements of type {kind}", "a tensor type of ONNX"
        )
    return str(onnx.helper.tensor_dtype_to_np_dtype(kind))
