"""Sums at places that the file knows, as Gathers and ReduceSums: TensorRT scatters without adding.

Lift-splat networks and voxel encoders add each feature to the cell that its ray or point falls into
(`index_add`, `scatter_add`, `index_put(accumulate=True)`): a ScatterND or ScatterElements with
reduction add. Where the camera does not move, the places are constants, so it is known which
updates a cell is the sum of. Cells with 2^(k-1) < n <= 2^k of them are gathered together as
[cells, 2^k, values], what they lack being a row of zeros, and summed: at most twice the updates are
read.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from artifacts.graph_reading import read_tensors
from artifacts.shape_inference import infer_shapes
from artifacts.unread_nodes import keep_read_nodes
from export.fp16_check import run_model
from export.lint.graph import LintGraph, attribute

_TYPES: dict[int, type[np.floating[Any]]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
}


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """A scatter that adds, seen as rows.

    Attributes:
        places: for each row of the updates, the row of the data that it is added to, [U].
        shape: of the data.
        order: of the axes of data and updates; in it, the first ones count rows.
        leading: how many axes count rows.
        dtype: of data and updates.
    """

    places: NDArray[np.int64]
    shape: tuple[int, ...]
    order: tuple[int, ...]
    leading: int
    dtype: type[np.floating[Any]]

    @property
    def ordered_shape(self) -> tuple[int, ...]:
        """The data's shape, axes in `order`."""
        return tuple(self.shape[axis] for axis in self.order)

    @property
    def rows(self) -> int:
        """Rows of the data."""
        return math.prod(self.ordered_shape[: self.leading])

    @property
    def width(self) -> int:
        """Values of a row."""
        return math.prod(self.ordered_shape[self.leading :])


def gather_scattered_sums(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network with sums at constant places written without scatter.

    Args:
        model: in topological order, with unique names of nodes, shape-inferred; returned itself
            where nothing is to be done.
    """
    graph = LintGraph(model)
    found = {
        node.output[0]: sums
        for node in graph.of("ScatterND", "ScatterElements")
        if (sums := _read_sums(graph, node)) is not None
    }
    if not found:
        return model
    written = onnx.ModelProto()
    written.CopyFrom(model)
    del written.graph.node[:], written.graph.value_info[:]
    for node in model.graph.node:
        sums = found.get(node.output[0])
        if sums is None:
            written.graph.node.append(node)
            continue
        writer = _Writer(written.graph, node.name)
        writer.write_sums(node, sums)
    return infer_shapes(written)


def _read_sums(graph: LintGraph, node: onnx.NodeProto) -> _Sums | None:
    """Returns what a scatter adds to which rows; None where it does not add or that is unknown."""
    data, indices = node.input[:2]
    shape, dtype = graph.shape(data), _TYPES.get(graph.element_type(data))
    if attribute(node, "reduction", "none") != "add" or not graph.is_folded(indices):
        return None
    if not shape or dtype is None:
        return None
    values = _compute_constant(graph, indices)
    order = tuple(range(len(shape)))
    if node.op_type == "ScatterND":
        coordinates = list(np.moveaxis(values, -1, 0).reshape(values.shape[-1], -1))
    else:
        axis = attribute(node, "axis", 0) % len(shape)
        if _is_alike_across(values, axis, shape):
            order = (axis, *(other for other in order if other != axis))
            coordinates = [np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)[:, 0]]
        else:
            coordinates = [places.reshape(-1) for places in np.indices(values.shape)]
            coordinates[axis] = values.reshape(-1)
    leading = len(coordinates)
    sizes = [shape[axis] for axis in order[:leading]]
    inside = [places % size for places, size in zip(coordinates, sizes, strict=True)]
    places = np.asarray(np.ravel_multi_index(inside, sizes), np.int64)
    if not places.size:
        return None
    return _Sums(places=places, shape=shape, order=order, leading=leading, dtype=dtype)


def _is_alike_across(indices: NDArray[Any], axis: int, shape: tuple[int, ...]) -> bool:
    """Whether ScatterElements moves whole slices along an axis, all values of one alike."""
    is_whole = all(
        own == size
        for other, (own, size) in enumerate(zip(indices.shape, shape, strict=True))
        if other != axis
    )
    rows = np.moveaxis(indices, axis, 0).reshape(indices.shape[axis], -1)
    return is_whole and bool((rows == rows[:, :1]).all())


def _compute_constant(graph: LintGraph, tensor: str) -> NDArray[Any]:
    """Returns the value of a tensor that follows from constants alone."""
    value = graph.constant(tensor)
    if value is not None:
        return value
    nodes = keep_read_nodes(graph.nodes, [tensor])
    needed = {name for node in nodes for name in read_tensors(node)}
    held = [graph.initializers[name] for name in needed & graph.initializers.keys()]
    output = helper.make_tensor_value_info(tensor, graph.element_type(tensor), None)
    part = onnx.ModelProto(ir_version=graph.model.ir_version)
    part.opset_import.extend(graph.model.opset_import)
    part.graph.CopyFrom(helper.make_graph(nodes, "places", [], [output], held))
    (result,) = run_model(part, [{}])
    return result[tensor]


def _group_cells(
    places: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yields cells with similar numbers of updates, [C], and the updates of each, [C, 2^k].

    What a cell lacks has the number behind the last update.
    """
    order = np.argsort(places, kind="stable")
    cells, first, counts = np.unique(places[order], return_index=True, return_counts=True)
    exponents = np.ceil(np.log2(counts)).astype(np.int64)
    for exponent in np.unique(exponents):
        own = exponents == exponent
        steps = np.arange(2**exponent)
        is_there = steps < counts[own, None]
        at = np.minimum(first[own, None] + steps, len(order) - 1)
        yield cells[own], np.where(is_there, order[at], len(order))


class _Writer:
    """Appends nodes and constants to a graph, with names that begin alike."""

    def __init__(self, graph: onnx.GraphProto, name: str) -> None:
        self.graph = graph
        self.name = name
        self._count = 0

    def write_sums(self, node: onnx.NodeProto, sums: _Sums) -> None:
        """Writes data + the sums of updates, in place of a scatter."""
        data, _, updates = node.input
        updates = self._turn(updates, sums.order)
        rows = self.write("Reshape", updates, self.hold(np.array([len(sums.places), sums.width])))
        nothing = self.hold(np.zeros((1, sums.width), sums.dtype))
        padded = self.write("Concat", rows, nothing, axis=0)
        line, parts = np.zeros(sums.rows, np.int64), []
        written = 1
        for cells, members in _group_cells(sums.places):
            gathered = self.write("Gather", padded, self.hold(members), axis=0)
            parts.append(self.write("ReduceSum", gathered, self.hold(np.array([1])), keepdims=0))
            line[cells] = written + np.arange(len(cells))
            written += len(cells)
        joined = self.write("Concat", nothing, *parts, axis=0)
        ordered = self.write("Gather", joined, self.hold(line), axis=0)
        added = self.write("Reshape", ordered, self.hold(np.array(sums.ordered_shape)))
        added = self._turn(added, tuple(np.argsort(sums.order).tolist()))
        self.graph.node.append(helper.make_node("Add", [data, added], node.output[:1], node.name))

    def _turn(self, tensor: str, order: tuple[int, ...]) -> str:
        is_turned = order != tuple(range(len(order)))
        return self.write("Transpose", tensor, perm=order) if is_turned else tensor

    def hold(self, value: NDArray[np.generic]) -> str:
        """Stores a constant; returns its name."""
        name = self._next_name()
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def write(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Appends a node; returns the name of its output."""
        name = self._next_name()
        self.graph.node.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def _next_name(self) -> str:
        self._count += 1
        return f"{self.name}_sum_{self._count}"
