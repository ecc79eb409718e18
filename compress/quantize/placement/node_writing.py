"""How forms write nodes in the place of others."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from artifacts.openvino_guard import make_guard
from compress.quantize.graph import Array, Graph

Write = Callable[[onnx.NodeProto], list[onnx.NodeProto] | None]
"""Returns what is put in a node's place; None keeps it."""


def replace_nodes(graph: Graph, write: Write, *, with_tail: bool = False) -> list[str]:
    """Puts other nodes in a node's place; returns the names of those replaced.

    Args:
        graph: edited in place.
        write: returns the other nodes.
        with_tail: what lies behind the network's last decision too.
    """
    graph.nodes, replaced = _write_all(graph.nodes, write)
    if with_tail:
        graph.tail, more = _write_all(graph.tail, write)
        replaced += more
    graph.index()
    return replaced


def _write_all(
    nodes: Sequence[onnx.NodeProto], write: Write
) -> tuple[list[onnx.NodeProto], list[str]]:
    written: list[onnx.NodeProto] = []
    replaced = []
    for node in nodes:
        others = write(node)
        written += [node] if others is None else others
        replaced += [] if others is None else [node.name]
    return written, replaced


def slice_axis(
    graph: Graph, tensor: str, axis: int, part: tuple[int, int], stem: str
) -> onnx.NodeProto:
    """Returns a node that takes a part of an axis; the graph takes up its constants.

    Args:
        graph: knows the tensor's shape.
        tensor: its name.
        axis: counted from the first.
        part: from where to where.
        stem: what the node and its constants are named after.
    """
    ends = {"start": part[0], "end": part[1], "axis": axis}
    names = [graph.add_integers(f"{stem}_{what}", [value]) for what, value in ends.items()]
    shape = list(graph.shapes[tensor])
    shape[axis] = part[1] - part[0]
    result = describe_tensor(graph, stem, tensor, shape)
    return helper.make_node("Slice", [tensor, *names], [result], result)


def describe_tensor(graph: Graph, stem: str, source: str, shape: Sequence[int] | None) -> str:
    """Returns the name of a new tensor like `source`, of a shape of its own, if it is known."""
    result = graph.unused_name(stem)
    if shape is not None:
        graph.shapes[result] = tuple(shape)
    if source in graph.float32:
        graph.float32.add(result)
    return result


def guard_input(graph: Graph, node: onnx.NodeProto) -> onnx.NodeProto:
    """Lets a node read its first input through a guard; returns that, which stands before it.

    Args:
        graph: is told of the guard's tensor.
        node: edited in place.
    """
    tensor = node.input[0]
    guard = make_guard(f"{node.name}_input")
    guard.input[0] = tensor
    guard.output[0] = describe_tensor(graph, guard.name, tensor, graph.shapes.get(tensor))
    node.input[0] = guard.output[0]
    return guard


def guard_result(
    graph: Graph, node: onnx.NodeProto, *, is_extremum: bool = False
) -> onnx.NodeProto:
    """Lets a guard make a node's first result of what the node makes; returns it.

    Args:
        graph: is told of the tensor between the two.
        node: edited in place.
        is_extremum: whether it is a maximum or minimum.
    """
    result = node.output[0]
    bare = describe_tensor(graph, f"{node.name}_bare", result, graph.shapes.get(result))
    guard = make_guard(bare, is_extremum=is_extremum)
    node.output[0], guard.output[0] = bare, result
    return guard


class NodeWriter:
    """Writes float32 nodes that compute a tensor; the last one of them writes it.

    Args:
        graph: takes up constants, and what is known of the new tensors. It takes up no nodes.
        result: the tensor, after which new nodes and tensors are named.
    """

    def __init__(self, graph: Graph, result: str) -> None:
        self._graph = graph
        self._result = result
        self._nodes: list[onnx.NodeProto] = []

    def write(self, operator: str, *operands: str | float | Array, **attributes: Any) -> str:
        """Writes a node that broadcasts its operands; returns its result's name.

        Args:
            operator: elementwise.
            operands: tensors by their names, or constants.
            attributes: those of the node.
        """
        names = [self._name(operator, operand) for operand in operands]
        shapes = [self._shape(name) for name in names]
        known = [shape for shape in shapes if shape is not None]
        shape = np.broadcast_shapes(*known) if len(known) == len(shapes) else None
        return self._take(helper.make_node(operator, names, [""], **attributes), shape)

    def convolve(self, data: str, matrix: Array) -> str:
        """Writes a 1x1 Conv of `data` [N, in, H, W] with `matrix` [out, in]."""
        shape = self._shape(data)
        result = None if shape is None else (shape[0], len(matrix), *shape[2:])
        names = [data, self._name("Conv", matrix[:, :, None, None])]
        return self._take(helper.make_node("Conv", names, [""]), result)

    def average(self, data: str, axes: Sequence[int]) -> str:
        """Writes the mean of `data` over axes, which are kept."""
        return self.reduce("ReduceMean", data, axes)

    def reduce(self, operator: str, data: str, axes: Sequence[int]) -> str:
        """Writes a reduction of `data` over axes, counted from the first, which are kept."""
        shape = self._shape(data)
        if shape is not None:
            shape = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        return self._take(make_reduction(self._graph, operator, data, axes, ""), shape)

    def squeeze(self, data: str, axes: Sequence[int]) -> str:
        """Writes `data` without axes of length 1, counted from the first."""
        shape = self._shape(data)
        if shape is not None:
            shape = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        if self._graph.opset < 13:
            return self._take(helper.make_node("Squeeze", [data], [""], axes=axes), shape)
        given = self._graph.add_integers(f"{data}_axes", axes)
        return self._take(helper.make_node("Squeeze", [data, given], [""]), shape)

    def normalize(
        self, data: str, mean: Callable[[str], str], epsilon: float, scale: Array, bias: Array
    ) -> str:
        """Writes (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) scale + bias.

        Args:
            data: x.
            mean: writes the mean of a tensor, such that it broadcasts with the tensor.
            epsilon: added to the variance.
            scale: all ones are left out.
            bias: all zeros are left out.
        """
        centred = self.write("Sub", data, mean(data))
        variance = mean(self.write("Mul", centred, centred))
        deviation = self.write("Sqrt", self.write("Add", variance, epsilon))
        normal = self.write("Div", centred, deviation)
        for operator, value, idle in (("Mul", scale, 1), ("Add", bias, 0)):
            if np.any(value != idle):
                normal = self.write(operator, normal, value)
        return normal

    def finish(self) -> list[onnx.NodeProto]:
        """Returns the nodes; the last one writes the tensor that was to be computed."""
        self._nodes[-1].output[0] = self._result
        return self._nodes

    def _take(self, node: onnx.NodeProto, shape: tuple[int, ...] | None) -> str:
        name = self._graph.unused_name(f"{self._result}_{node.op_type}_{len(self._nodes)}")
        node.name = node.output[0] = name
        self._nodes.append(node)
        self._graph.float32.add(name)
        if shape is not None:
            self._graph.shapes[name] = shape
        return name

    def _name(self, operator: str, operand: str | float | Array) -> str:
        if isinstance(operand, str):
            return operand
        name = self._graph.unused_name(f"{self._result}_{operator}_constant")
        self._graph.weights[name] = np.asarray(operand, np.float32)
        return name

    def _shape(self, name: str) -> tuple[int, ...] | None:
        value = self._graph.weights.get(name)
        return self._graph.shapes.get(name) if value is None else value.shape


def make_reduction(
    graph: Graph, operator: str, data: str, axes: Sequence[int], result: str
) -> onnx.NodeProto:
    """Returns a reduction that keeps the axes; the opset says how these are given."""
    name = f"{result}_{operator}"
    if graph.opset < (13 if operator == "ReduceSum" else 18):
        return helper.make_node(operator, [data], [result], name, axes=axes, keepdims=1)
    given = graph.add_integers(f"{name}_axes", axes)
    return helper.make_node(operator, [data, given], [result], name, keepdims=1)
