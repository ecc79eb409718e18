"""An ONNX graph with its edges indexed and its weights as arrays, made for editing."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from artifacts.graph_checks import node_subgraphs
from artifacts.graph_reading import (
    WITH_SUBGRAPHS,
    names_in,
    read_static_shapes,
    read_tensors,
    typed_values,
    unused_name,
)
from artifacts.graph_reading import attribute as attribute
from artifacts.output_parts import OutputPart, find_output_parts

Array = NDArray[Any]


class Graph:
    """An editable copy of an ONNX model's main graph.

    Nodes are kept in topological order and have unique names. Initializers are numpy arrays in
    `weights`; editing passes change `nodes` and `weights` and then call `index`. `shapes` and
    `float32` say of which tensors the shape is known, and which are known to hold float32.
    `compress.decided_outputs` may move the network's end from `nodes` to `tail`: `outputs` are then
    the tensors that the tail reads, and `measured` those that a decided output is measured at.

    Args:
        model: a model in topological order (as `onnx.checker` demands); it is not changed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._frame = onnx.ModelProto()
        self._frame.CopyFrom(_without_tensors(model))
        self.nodes: list[onnx.NodeProto] = [_copy_node(node) for node in model.graph.node]
        self.weights: dict[str, Array] = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer
        }
        self.inputs = [item.name for item in model.graph.input if item.name not in self.weights]
        self.outputs = [item.name for item in model.graph.output]
        self.tail: list[onnx.NodeProto] = []
        self.measured: dict[str, tuple[str, ...]] = {}
        self.shapes = read_static_shapes(typed_values(model))
        self.float32 = _known_float32(model)
        self._name_nodes()
        self.index()

    def _name_nodes(self) -> None:
        taken: set[str] = set()
        for position, node in enumerate(self.nodes):
            stem = node.name or f"{node.op_type}_{position}"
            name = stem
            while name in taken:
                name = f"{stem}_{position}"
                position += len(self.nodes)
            node.name = name
            taken.add(name)

    def copy(self) -> "Graph":
        """Returns a graph that can be edited on its own; weights are shared, never changed."""
        twin = copy(self)
        twin.nodes = [_copy_node(node) for node in self.nodes]
        twin.weights = dict(self.weights)
        twin.shapes, twin.float32 = dict(self.shapes), set(self.float32)
        twin.index()
        return twin

    def index(self) -> None:
        """Rebuilds the edges after a change of `nodes`."""
        self._producers = {output: node for node in self.nodes for output in node.output if output}
        self._consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(read_tensors(node)):
                self._consumers.setdefault(name, []).append(node)

    def add_integers(self, stem: str, values: Sequence[int]) -> str:
        """Takes up a constant of int64, such as axes or a shape; returns its name."""
        name = self.unused_name(stem)
        self.weights[name] = np.array(values, np.int64)
        return name

    def maker_beyond(self, tensor: str, passed: Collection[str]) -> onnx.NodeProto | None:
        """Returns the node that makes a tensor, beyond operators that may stand between.

        Args:
            tensor: its name.
            passed: these operators, where they read but one computed tensor.
        """
        return self._pass(
            self.producer(tensor), passed, lambda node: self.producer(self.computed_inputs(node)[0])
        )

    def reader_beyond(self, tensor: str, passed: Collection[str]) -> onnx.NodeProto | None:
        """Returns the one node that reads a tensor, beyond operators that may stand between.

        Args:
            tensor: its name.
            passed: these operators, where they read but one computed tensor.
        """
        return self._pass(
            self.sole_consumer(tensor), passed, lambda node: self.sole_consumer(node.output[0])
        )

    def _pass(
        self,
        node: onnx.NodeProto | None,
        passed: Collection[str],
        follow: Callable[[onnx.NodeProto], onnx.NodeProto | None],
    ) -> onnx.NodeProto | None:
        """Returns the first node that is not passed; None where one reads several tensors."""
        while node is not None and node.op_type in passed:
            node = follow(node) if len(self.computed_inputs(node)) == 1 else None
        return node

    def computed_inputs(self, node: onnx.NodeProto) -> list[str]:
        """Returns what a node reads that is no constant, by its places."""
        return [name for name in node.input if name and name not in self.weights]

    def producer(self, tensor: str) -> onnx.NodeProto | None:
        """Returns the node that computes `tensor`; None for inputs and initializers."""
        return self._producers.get(tensor)

    def consumers(self, tensor: str) -> list[onnx.NodeProto]:
        """Returns the nodes that read `tensor`, in topological order."""
        return self._consumers.get(tensor, [])

    def sole_consumer(self, tensor: str) -> onnx.NodeProto | None:
        """Returns the one node that reads `tensor`; None if others, or the user, read it too."""
        readers = self.consumers(tensor)
        return readers[0] if len(readers) == 1 and tensor not in self.outputs else None

    def node(self, name: str) -> onnx.NodeProto:
        """Returns the node called `name`."""
        return next(node for node in self.nodes if node.name == name)

    def rewire(self, old: str, new: str) -> None:
        """Lets every node that reads tensor `old` read `new` instead."""
        for node in self.consumers(old):
            for position, name in enumerate(node.input):
                if name == old:
                    node.input[position] = new

    def insert(self, place: int, node: onnx.NodeProto) -> None:
        """Inserts a node whose result has its first input's shape and type; rebuilds the edges."""
        self.nodes.insert(place, node)
        if node.input[0] in self.shapes:
            self.shapes[node.output[0]] = self.shapes[node.input[0]]
        if node.input[0] in self.float32:
            self.float32.add(node.output[0])
        self.index()

    def add_behind(self, layer: onnx.NodeProto, offset: str) -> None:
        """Lets an Add of a layer's products and the weight `offset` write what the layer wrote."""
        result = layer.output[0]
        products = layer.output[0] = self.unused_name(f"{layer.name}_products")
        self.float32.add(products)
        if result in self.shapes:
            self.shapes[products] = self.shapes[result]
        name = self.unused_name(f"{layer.name}_offset")
        add = onnx.helper.make_node("Add", [products, offset], [result], name)
        self.nodes.insert(self.nodes.index(layer) + 1, add)
        self.index()

    def replace_weights(self, layer: onnx.NodeProto, weight: Array, bias: Array) -> None:
        """Gives a layer a weight and a bias of its own, so that shared ones stay as they are."""
        del layer.input[1:]
        for value, kind in ((weight, "weight"), (bias, "bias")):
            name = self.unused_name(f"{layer.name}_{kind}")
            self.weights[name] = value
            layer.input.append(name)
        self.index()
        self.drop_unused_weights()

    def remove(self, names: Iterable[str]) -> None:
        """Removes the nodes called `names` and rebuilds the edges."""
        gone = set(names)
        self.nodes = [node for node in self.nodes if node.name not in gone]
        self.index()

    def unused_name(self, stem: str) -> str:
        """Returns `stem`, or `stem` with a number, such that no tensor or node has that name."""
        return unused_name(stem, self.taken_names())

    def taken_names(self) -> set[str]:
        """Returns the names of all tensors and nodes, those in the branches of an If included."""
        inner = (
            names_in(subgraph)
            for node in (*self.nodes, *self.tail)
            if node.op_type in WITH_SUBGRAPHS
            for subgraph in node_subgraphs(node)
        )
        return set().union(*inner) | (
            self._producers.keys()
            | self.weights.keys()
            | set(self.inputs)
            | {node.name for node in (*self.nodes, *self.tail)}
            | {name for node in self.tail for name in node.output}
        )

    def drop_unused_weights(self) -> None:
        """Forgets the weights that no node and no output reads."""
        used = {name for node in self.tail for name in read_tensors(node)}
        used |= self._consumers.keys() | set(self.outputs)
        self.weights = {name: value for name, value in self.weights.items() if name in used}

    @property
    def opset(self) -> int:
        """The version of the default operator set."""
        return int(
            next(
                item.version for item in self._frame.opset_import if item.domain in ("", "ai.onnx")
            )
        )

    @property
    def values(self) -> list[onnx.ValueInfoProto]:
        """Types of tensors of the model that this was made of, as far as they are known."""
        return typed_values(self._frame)

    @property
    def results(self) -> dict[str, tuple[str, ...]]:
        """The model's outputs, each with the tensors that its error is measured at."""
        names = [item.name for item in self._frame.graph.output]
        return {name: self.measured.get(name, (name,)) for name in names}

    def find_parts(self) -> tuple[OutputPart, ...]:
        """Returns the unlike parts of the tensors that the outputs' errors are measured at."""
        measured = list(dict.fromkeys(name for names in self.results.values() for name in names))
        return find_output_parts(self.nodes, self.shapes, measured)

    @property
    def opset_imports(self) -> list[onnx.OperatorSetIdProto]:
        """All operator sets that the model imports."""
        return list(self._frame.opset_import)

    @property
    def functions(self) -> list[onnx.FunctionProto]:
        """The model's local functions."""
        return list(self._frame.functions)

    def to_model(self) -> onnx.ModelProto:
        """Returns the graph as a model of its own."""
        self.drop_unused_weights()
        model = onnx.ModelProto()
        model.CopyFrom(self._frame)
        model.graph.node.extend([*self.nodes, *self.tail])
        model.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(value), name) for name, value in self.weights.items()
        )
        made = {name for node in model.graph.node for name in node.output}
        kept = [item for item in model.graph.value_info if item.name in made]
        del model.graph.value_info[:]
        model.graph.value_info.extend(kept)
        return model


def rename_tensors(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Returns a node that reads and writes tensors by new names; its subgraphs read by them too."""
    twin = _copy_node(node)
    _rename_in_place(twin, names)
    return twin


def _rename_in_place(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for tensors in (node.input, node.output):
        tensors[:] = [names.get(name, name) for name in tensors]
    for subgraph in node_subgraphs(node):
        for child in subgraph.node:
            _rename_in_place(child, names)
        for result in subgraph.output:
            result.name = names.get(result.name, result.name)


def _without_tensors(model: onnx.ModelProto) -> onnx.ModelProto:
    frame = onnx.ModelProto(
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        opset_import=model.opset_import,
        metadata_props=model.metadata_props,
        functions=model.functions,
    )
    weights = {tensor.name for tensor in model.graph.initializer}
    frame.graph.name = model.graph.name or "graph"
    frame.graph.input.extend(item for item in model.graph.input if item.name not in weights)
    frame.graph.output.extend(model.graph.output)
    frame.graph.value_info.extend(model.graph.value_info)
    return frame


def _copy_node(node: onnx.NodeProto) -> onnx.NodeProto:
    twin = onnx.NodeProto()
    twin.CopyFrom(node)
    return twin


def _known_float32(model: onnx.ModelProto) -> set[str]:
    return {
        item.name
        for item in typed_values(model)
        if item.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
