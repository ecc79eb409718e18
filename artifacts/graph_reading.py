"""What a node reads, and what a model says of its tensors."""

from collections.abc import Container, Iterable, Iterator
from typing import Any

import onnx

from artifacts.graph_checks import node_subgraphs

WITH_SUBGRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Of ONNX's operators; a look at the attributes of all others takes longer than all else here."""


def read_tensors(node: onnx.NodeProto) -> Iterator[str]:
    """Yields every tensor a node reads, those that its subgraphs take from outside included."""
    yield from filter(None, node.input)
    if not node.domain and node.op_type not in WITH_SUBGRAPHS:
        return
    for subgraph in node_subgraphs(node):
        inner = {item.name for item in subgraph.input}
        inner |= {tensor.name for tensor in subgraph.initializer}
        for child in subgraph.node:
            yield from (name for name in read_tensors(child) if name not in inner)
            inner |= set(child.output)
        yield from (item.name for item in subgraph.output if item.name not in inner)


def names_in(graph: onnx.GraphProto) -> set[str]:
    """Returns the names of all tensors and nodes of a graph, those of its subgraphs included."""
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    names = {item.name for item in values}
    for node in graph.node:
        names.update((node.name, *node.input, *node.output))
        for subgraph in node_subgraphs(node):
            names |= names_in(subgraph)
    return names


def unused_name(stem: str, taken: Container[str]) -> str:
    """Returns `stem`, or `stem` with a number, such that it is none of the names in use."""
    name, number = stem, 1
    while name in taken:
        name, number = f"{stem}_{number}", number + 1
    return name


class NewNames:
    """Gives names that nothing in a graph has, each of them once.

    Args:
        taken: the names of its tensors and nodes.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def take(self, stem: str) -> str:
        """Returns `stem`, or `stem` with a number."""
        name = unused_name(stem, self._taken)
        self._taken.add(name)
        return name


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """Returns the value of a node's attribute, or `default` where it is not given."""
    for item in node.attribute:
        if item.name == name:
            return onnx.helper.get_attribute_value(item)
    return default


def read_constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Returns the constants by name: initializers, and what Constant nodes hold as a tensor."""
    return {item.name: item for item in graph.initializer} | {
        node.output[0]: item.t
        for node in graph.node
        if node.op_type == "Constant"
        for item in node.attribute
        if item.name == "value"
    }


def typed_values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Returns what a model says of its tensors' types and shapes."""
    return [*model.graph.input, *model.graph.value_info, *model.graph.output]


def read_static_shapes(values: Iterable[onnx.ValueInfoProto]) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each tensor whose axes all have a size."""
    shapes = {}
    for item in values:
        if item.type.tensor_type.HasField("shape"):
            dims = item.type.tensor_type.shape.dim
            if all(dim.HasField("dim_value") for dim in dims):
                shapes[item.name] = tuple(dim.dim_value for dim in dims)
    return shapes
