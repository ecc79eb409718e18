"""Writes at the places of a mask, as choices: TensorRT-RTX has no list of positions (NonZero).

`x[torch.where(mask)] = value` (the attention of OneFormer's decoder) is exported as a ScatterND at
the positions NonZero(mask). What it leaves is `where(mask, value, x)`, whose shapes are known. Of
truth values it is an Or or an And: onnxruntime has no Where for them.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from artifacts.graph_reading import (
    attribute,
    read_constants,
    read_static_shapes,
    typed_values,
)
from artifacts.shape_inference import infer_shapes
from artifacts.unread_constants import drop_unread_constants
from artifacts.unread_nodes import keep_read_nodes

_VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})


def select_masked_writes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network with writes of one value at a mask's places as choices.

    Args:
        model: in topological order, with unique names; returned itself where nothing is to be done.
    """
    if not any(node.op_type == "NonZero" for node in model.graph.node):
        return model
    reader = _Reader(infer_shapes(model))
    selected = {
        node.output[0]: found
        for node in model.graph.node
        if node.op_type == "ScatterND" and (found := reader.read_write(node)) is not None
    }
    if not selected:
        return model
    written = onnx.ModelProto()
    written.CopyFrom(model)
    del written.graph.node[:], written.graph.value_info[:]
    nodes = []
    for node in model.graph.node:
        found = selected.get(node.output[0])
        nodes += [node] if found is None else _write_choice(written, node, found)
    outputs = [item.name for item in model.graph.output]
    written.graph.node.extend(keep_read_nodes(nodes, outputs))
    drop_unread_constants(written.graph)
    return infer_shapes(written)


@dataclass(frozen=True)
class _MaskedWrite:
    """A scatter of one value.

    Attributes:
        mask: the tensor at whose nonzero places it writes.
        missing: the axes of the data that the mask lacks, its last ones.
        value: what is written, [].
    """

    mask: str
    missing: Sequence[int]
    value: NDArray[Any]


class _Reader:
    """Reads what the scatters of a graph write where.

    Args:
        model: shape-inferred.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._constants = read_constants(model.graph)
        self._shapes = read_static_shapes(typed_values(model))
        self._producers = {name: node for node in model.graph.node for name in node.output}

    def read_write(self, node: onnx.NodeProto) -> _MaskedWrite | None:
        """Returns what a ScatterND writes; None where it is not one value at a mask's places."""
        data, places, update = node.input
        mask = self._find_mask(places)
        value = self._constant(self._find_source(update, _VIEWS | {"Expand"}))
        reduces = attribute(node, "reduction", b"none") != b"none"
        if mask is None or value is None or value.size != 1 or reduces:
            return None
        wide, narrow = self._shapes.get(data), self._shapes.get(mask)
        if wide is None or narrow is None or wide[: len(narrow)] != narrow:
            return None
        return _MaskedWrite(mask, range(len(narrow), len(wide)), value.reshape(()))

    def _find_mask(self, places: str) -> str | None:
        """Returns what `places`, [positions, axes], are the nonzero positions of."""
        node = self._producers.get(places)
        if node is None or node.op_type != "Concat":
            return self._read_list(places)
        columns = [self._read_column(name) for name in node.input]
        mask = columns[0][0] if columns[0] else ""
        wanted = [(mask, axis) for axis in range(len(self._shapes.get(mask, ())))]
        return mask if wanted and columns == wanted else None

    def _read_list(self, tensor: str) -> str | None:
        """Returns the mask whose positions a tensor holds, [positions, axes]."""
        turned = self._producers.get(tensor)
        if turned is None or turned.op_type != "Transpose":
            return None
        found = self._producers.get(turned.input[0])
        return found.input[0] if found is not None and found.op_type == "NonZero" else None

    def _read_column(self, tensor: str) -> tuple[str, int] | None:
        """Returns the mask and the axis of it along which a tensor holds positions."""
        tensor = self._find_source(tensor, _VIEWS | {"Cast"})
        node = self._producers.get(tensor)
        if (
            node is not None
            and node.op_type == "Expand"
            and self._shapes.get(node.input[1]) == (1,)
        ):
            return self._read_column(node.input[0])
        mask = self._read_list(node.input[0]) if node is not None else None
        if node is None or mask is None:
            return None
        numbers = [self._read_number(name) for name in node.input[1:]]
        axis, column, size = attribute(node, "axis", 0), None, 1
        if node.op_type == "Gather":
            column = numbers[0]
        elif node.op_type == "Split" and len(node.output) == len(self._shapes.get(mask, ())):
            column = list(node.output).index(tensor)
        elif node.op_type == "Slice" and numbers[0] is not None:
            axis = numbers[2] if len(numbers) > 2 else 0
            column, size = numbers[0], (numbers[1] or 0) - numbers[0]
        return (mask, column) if column is not None and axis in (-1, 1) and size == 1 else None

    def _read_number(self, tensor: str) -> int | None:
        value = self._constant(tensor)
        return int(value.reshape(())) if value is not None and value.size == 1 else None

    def _find_source(self, tensor: str, operators: Set[str]) -> str:
        """Returns what a tensor was before some operators."""
        while (node := self._producers.get(tensor)) is not None and node.op_type in operators:
            tensor = node.input[0]
        return tensor

    def _constant(self, tensor: str) -> NDArray[Any] | None:
        held = self._constants.get(tensor)
        return None if held is None else numpy_helper.to_array(held)


def _write_choice(
    model: onnx.ModelProto, node: onnx.NodeProto, found: _MaskedWrite
) -> list[onnx.NodeProto]:
    """Returns the nodes that stand for a scatter: a Where, of truth values an Or or an And."""
    stem, data = f"{node.output[0]}_masked", node.input[0]
    nodes = []

    def write(operator: str, *inputs: str, **given: int) -> str:
        name = f"{stem}_{operator.lower()}"
        nodes.append(helper.make_node(operator, inputs, [name], name, **given))
        return name

    def hold(name: str, constant: NDArray[Any]) -> str:
        model.graph.initializer.append(numpy_helper.from_array(constant, f"{stem}_{name}"))
        return f"{stem}_{name}"

    chosen = write("Cast", found.mask, to=TensorProto.BOOL)
    if found.missing:
        chosen = write("Unsqueeze", chosen, hold("axes", np.array(found.missing, np.int64)))
    if found.value.dtype != np.bool_:
        last = helper.make_node("Where", [chosen, hold("value", found.value), data], node.output)
    elif found.value:
        last = helper.make_node("Or", [data, chosen], node.output)
    else:
        last = helper.make_node("And", [data, write("Not", chosen)], node.output)
    last.name = node.name
    return [*nodes, last]
