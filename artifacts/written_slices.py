"""Slices that are written in place, as the Concats and Pads that they are.

A cost volume of a stereo network (Chang and Chen, 2018, "Pyramid Stereo Matching Network") is
filled disparity by disparity, `cost[:, :c, i, :, i:] = left[:, :, :, i:]`, and a decoder writes
`boxes[..., :2] = ...`. Exporters write each as a scatter with a place for every value or row: of
KITTI's pictures, indices alone are 0.7 GB, and every scatter copies the whole volume. The places
are known, so what the tensor holds in the end is boxes of other tensors behind each other.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from artifacts.graph_reading import attribute, read_tensors
from artifacts.tensor_boxes import (
    Box,
    Fill,
    Row,
    Value,
    count_parts,
    drop_axis,
    fit_ones,
    join,
    take,
    transpose,
    whole,
    write,
)
from artifacts.unread_nodes import keep_read_nodes

SCATTERS = frozenset({"ScatterElements", "ScatterND"})
MOST_PARTS = 1024
"""Tensors made of more boxes stay as they are written."""

Shape = tuple[int, ...]


@dataclass
class Written:
    """Nodes in which slices are no longer written in place.

    Attributes:
        nodes: of the graph, in topological order; those that nothing reads any more are gone.
        weights: constants that they read besides those that were there.
        shapes: of the tensors that are new.
        sources: for each new tensor, one of the same type that was there, or a constant.
        replaced: names of the scatters that are gone.
    """

    nodes: list[onnx.NodeProto]
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)


def join_written_slices(
    nodes: list[onnx.NodeProto],
    weights: Mapping[str, NDArray[Any]],
    shapes: Mapping[str, Shape],
    outputs: Iterable[str],
) -> Written | None:
    """Writes scatters into slices at constant places as Concats and Pads.

    Args:
        nodes: in topological order; they are not changed.
        weights: the constants that are known.
        shapes: of the tensors whose shape is known.
        outputs: tensors that have to be there afterwards too.

    Returns:
        what is written instead; None where no scatter can be.
    """
    if not any(node.op_type in SCATTERS for node in nodes):
        return None
    reader = _Reader(weights, shapes)
    for node in nodes:
        reader.read(node)
    if not reader.written:
        return None
    kept = set(outputs)
    needed = kept | {
        name for node in nodes if not reader.moves(node) for name in read_tensors(node)
    }
    found = {name: reader.values[name] for name in reader.written if name in needed}
    inside = {name for node in nodes for name in read_tensors(node) if name not in node.input}
    writer = _Writer(reader, {name for node in nodes for name in node.output}, kept | inside)
    for node in nodes:
        if node.output[0] in found:
            writer.write_tensor(node.output[0], found[node.output[0]])
        elif node.output[0] not in reader.written:
            writer.copy(node)
    writer.result.nodes = keep_read_nodes(writer.result.nodes, kept)
    left = {node.name for node in writer.result.nodes}
    gone = [node.name for node in nodes if node.op_type in SCATTERS and node.name not in left]
    writer.result.replaced = gone
    return writer.result


class _Reader:
    """Follows what tensors hold through the operators that only move values.

    Attributes:
        values: of the tensors that such operators make.
        written: those of them into which a slice was written.
    """

    def __init__(self, weights: Mapping[str, NDArray[Any]], shapes: Mapping[str, Shape]) -> None:
        self._weights = weights
        self.shapes = shapes
        self.values: dict[str, Value] = {}
        self.written: set[str] = set()

    def moves(self, node: onnx.NodeProto) -> bool:
        """Whether it is known which values of its input a node moves where."""
        return node.output[0] in self.values

    def read(self, node: onnx.NodeProto) -> None:
        """Learns what a node makes, where that is known."""
        rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        shape = self.shapes.get(node.output[0])
        if rule is None or shape is None:
            return
        value = rule(self, node)
        if value is None or value.shape != shape or count_parts(value) > MOST_PARTS:
            return
        (output,) = node.output
        self.values[output] = value
        sources = node.input[::2] if node.op_type in SCATTERS else node.input[:1]
        if node.op_type in SCATTERS or self.written & set(sources):
            self.written.add(output)

    def value(self, tensor: str) -> Value | None:
        """Returns what a tensor holds; None where its shape is unknown or has no values."""
        if tensor in self.values:
            return self.values[tensor]
        constant, shape = self._weights.get(tensor), self.shape(tensor)
        if shape is None or 0 in shape:
            return None
        if constant is not None and constant.size > 1 and constant.dtype == np.float32:
            first = constant.flat[0]
            if (constant == first).all():
                return Fill(float(first), "float32", shape)
        return whole(tensor, shape)

    def shape(self, tensor: str) -> Shape | None:
        """Returns a tensor's shape; None where it is unknown."""
        constant = self._weights.get(tensor)
        return self.shapes.get(tensor) if constant is None else constant.shape

    def constant(self, node: onnx.NodeProto, place: int) -> NDArray[Any] | None:
        """Returns an input that is known beforehand."""
        return self._weights.get(node.input[place]) if len(node.input) > place else None


def _read_fill(reader: _Reader, node: onnx.NodeProto) -> Value | None:
    given = attribute(node, "value", None)
    number = np.zeros(1, np.float32) if given is None else onnx.numpy_helper.to_array(given)
    shape = reader.shapes[node.output[0]]
    known = reader.constant(node, 0) is not None and 0 not in shape
    return Fill(float(number[0]), "float32", shape) if known and number.dtype == "f4" else None


def _read_transpose(reader: _Reader, node: onnx.NodeProto) -> Value | None:
    value = reader.value(node.input[0])
    if value is None:
        return None
    return transpose(value, attribute(node, "perm", tuple(range(len(value.shape)))[::-1]))


def _read_slice(reader: _Reader, node: onnx.NodeProto) -> Value | None:
    value = reader.value(node.input[0])
    given = [
        item
        for place in range(1, len(node.input))
        if (item := reader.constant(node, place)) is not None
    ]
    if value is None or len(given) < 2 or len(given) != len(node.input) - 1:
        return None
    starts, ends = given[:2]
    axes = given[2] if len(given) > 2 else np.arange(len(starts))
    if len(given) > 3 and np.any(given[3] != 1):
        return None
    for start, end, axis in zip(starts, ends, axes, strict=True):
        axis = int(axis) % len(value.shape)
        first, last, _ = slice(int(start), int(end)).indices(value.shape[axis])
        if first >= last:
            return None
        value = take(value, axis, first, last)
    return value


def _read_gather(reader: _Reader, node: onnx.NodeProto) -> Value | None:
    value, place = reader.value(node.input[0]), reader.constant(node, 1)
    if value is None or place is None or place.ndim:
        return None
    axis = attribute(node, "axis", 0) % len(value.shape)
    start = int(place) % value.shape[axis]
    return drop_axis(take(value, axis, start, start + 1), axis)


def _read_ones(reader: _Reader, node: onnx.NodeProto) -> Value | None:
    """Returns what Squeeze, Unsqueeze and such a Reshape make: axes of size 1 come or go."""
    value = reader.value(node.input[0])
    return None if value is None else fit_ones(value, reader.shapes[node.output[0]])


def _read_same(reader: _Reader, node: onnx.NodeProto) -> Value | None:
    value = reader.value(node.input[0])
    same = value is not None and value.shape == reader.shapes[node.output[0]]
    return value if same else None


def _read_scatter(reader: _Reader, node: onnx.NodeProto) -> Value | None:
    value, update = reader.value(node.input[0]), reader.value(node.input[2])
    places = reader.constant(node, 1)
    reduces = attribute(node, "reduction", b"none") != b"none"
    if value is None or update is None or places is None or reduces or not places.size:
        return None
    find = _find_rows if node.op_type == "ScatterND" else _find_elements
    found = find(places, value.shape, attribute(node, "axis", 0))
    if found is None:
        return None
    starts, sizes = found
    fitting = fit_ones(update, sizes)
    return None if fitting is None else write(value, starts, fitting)


def _find_elements(places: NDArray[Any], shape: Shape, axis: int) -> tuple[Shape, Shape] | None:
    """Returns where the box begins that ScatterElements writes, and its sizes, if it is one."""
    axis %= len(shape)
    line = np.moveaxis(places % shape[axis], axis, -1)
    start = int(line.flat[0])
    if (line != np.arange(start, start + line.shape[-1])).any():
        return None
    return tuple(start if at == axis else 0 for at in range(len(shape))), places.shape


def _find_rows(places: NDArray[Any], shape: Shape, _: int) -> tuple[Shape, Shape] | None:
    """Returns where the box begins that ScatterND writes, and its sizes, if it is one in order."""
    count = places.shape[-1]
    rows = places.reshape(-1, count) % np.array(shape[:count])
    starts, sizes = rows[0], rows[-1] - rows[0] + 1
    if (sizes < 1).any() or sizes.prod() != len(rows):
        return None
    grid = np.indices(tuple(sizes)).reshape(count, -1).T + starts
    if (rows != grid).any():
        return None
    rest = shape[count:]
    return (*map(int, starts), *(0 for _ in rest)), (*map(int, sizes), *rest)


_Rule = Callable[[_Reader, onnx.NodeProto], Value | None]
_RULES: dict[str, _Rule] = {
    "ConstantOfShape": _read_fill,
    "Expand": _read_same,
    "Gather": _read_gather,
    "Identity": _read_same,
    "Reshape": _read_ones,
    "ScatterElements": _read_scatter,
    "ScatterND": _read_scatter,
    "Slice": _read_slice,
    "Squeeze": _read_ones,
    "Transpose": _read_transpose,
    "Unsqueeze": _read_ones,
}


class _Writer:
    """Writes nodes that make values; each value once.

    Args:
        reader: knows the shapes of the tensors that are there.
        taken: names that are in use.
        named: tensors that keep their names.
    """

    def __init__(self, reader: _Reader, taken: set[str], named: set[str]) -> None:
        self.result = Written([])
        self._reader = reader
        self._named = named
        self._other_names: dict[str, str] = {}
        self._taken = taken | set(reader.shapes)
        self._made: dict[Value, str] = {}

    def copy(self, node: onnx.NodeProto) -> None:
        """Adds a node that stays, reading what its inputs are called now."""
        if self._other_names.keys() & set(node.input):
            twin = onnx.NodeProto()
            twin.CopyFrom(node)
            twin.input[:] = [self._other_names.get(name, name) for name in node.input]
            node = twin
        self.result.nodes.append(node)

    def write_tensor(self, name: str, value: Value) -> None:
        """Makes a value under a name, or lets it be read where it is already."""
        made = self._write(value, name)
        if name in self._named:
            self._add("Identity", [made], value.shape, name, name=name)
        else:
            self._other_names[name] = made

    def _write(self, value: Value, stem: str) -> str:
        """Returns the tensor that holds a value."""
        if value not in self._made:
            write = {Box: self._write_box, Fill: self._write_fill, Row: self._write_row}
            self._made[value] = write[type(value)](value, stem)  # type: ignore[operator]
        return self._made[value]

    def _write_box(self, box: Box, stem: str) -> str:
        name, shape = box.tensor, self._reader.shape(box.tensor) or ()
        cut = [axis for axis, size in enumerate(shape) if box.sizes[axis] != size]
        if cut:
            starts = [box.begins[axis] for axis in cut]
            stops = [box.begins[axis] + box.sizes[axis] for axis in cut]
            bounds = [self._constant(stem, values) for values in (starts, stops, cut)]
            name = self._add("Slice", [name, *bounds], box.sizes, stem)
        held = [axis for axis in box.axes if axis is not None]
        missing = [axis for axis in range(len(shape)) if axis not in held]
        sizes = tuple(box.sizes[axis] for axis in held)
        if missing:
            kept = tuple(box.sizes[axis] for axis in sorted(held))
            name = self._add("Squeeze", [name, self._constant(stem, missing)], kept, stem)
        order = [sorted(held).index(axis) for axis in held]
        if order != sorted(order):
            name = self._add("Transpose", [name], sizes, stem, perm=order)
        added = [place for place, axis in enumerate(box.axes) if axis is None]
        if added:
            name = self._add("Unsqueeze", [name, self._constant(stem, added)], box.shape, stem)
        return name

    def _write_fill(self, fill: Fill, stem: str) -> str:
        return self._keep(stem, np.full(fill.shape, fill.number, fill.dtype))

    def _write_row(self, row: Row, stem: str) -> str:
        """Writes a Concat; what is the same number before or behind everything, as a Pad."""
        parts = list(row.parts)
        padding = [[0] * len(row.shape), [0] * len(row.shape)]
        numbers = [part.number for part in (parts[0], parts[-1]) if isinstance(part, Fill)]
        if len(set(numbers)) == 1:
            for side, place in enumerate((0, -1)):
                if isinstance(parts[place], Fill):
                    padding[side][row.axis] = parts.pop(place).shape[row.axis]
        inner = join(row.axis, parts)
        if isinstance(inner, Row) and inner.axis == row.axis:
            names = [self._write(part, stem) for part in inner.parts]
            made = self._add("Concat", names, inner.shape, stem, axis=row.axis)
        else:
            made = self._write(inner, stem)
        if inner.shape == row.shape:
            return made
        around = self._constant(stem, [*padding[0], *padding[1]])
        number = self._keep(stem, np.array(numbers[0], np.float32))
        return self._add("Pad", [made, around, number], row.shape, stem)

    def _add(
        self, kind: str, inputs: list[str], shape: Shape, stem: str, name: str = "", **given: Any
    ) -> str:
        output = name or self._unused(stem)
        self.result.shapes[output] = shape
        self.result.sources[output] = self.result.sources.get(inputs[0], inputs[0])
        self.result.nodes.append(helper.make_node(kind, inputs, [output], output, **given))
        return output

    def _constant(self, stem: str, values: Iterable[int]) -> str:
        return self._keep(stem, np.array(list(values), np.int64))

    def _keep(self, stem: str, value: NDArray[Any]) -> str:
        name = self._unused(stem)
        self.result.weights[name] = value
        return name

    def _unused(self, stem: str) -> str:
        number = 1
        while f"{stem}_{number}" in self._taken:
            number += 1
        self._taken.add(f"{stem}_{number}")
        return f"{stem}_{number}"
