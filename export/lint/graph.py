"""A graph with its edges indexed, its types and its shapes, made for reading only."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from artifacts import graph_reading
from artifacts.graph_checks import node_subgraphs
from artifacts.graph_reading import WITH_SUBGRAPHS, read_tensors

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that TensorRT computes in INT8 between Q/DQ."""


class LintGraph:
    """The main graph of a model, or a graph inside one of its nodes.

    Args:
        model: in topological order; shapes and types are inferred where it does not state them.
        outer: the graph around this one, whose tensors it reads too.
    """

    def __init__(self, model: onnx.ModelProto, outer: "LintGraph | None" = None) -> None:
        self.model = model
        self.opset = max(
            (item.version for item in model.opset_import if item.domain in ("", "ai.onnx")),
            default=0,
        )
        graph = model.graph
        self.nodes = list(graph.node)
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = [item for item in graph.input if item.name not in self.initializers]
        self.outputs = [item.name for item in graph.output]
        values = (*graph.input, *graph.value_info, *graph.output)
        self._values = {item.name: item.type.tensor_type for item in values}
        self._producers = {name: node for node in self.nodes for name in node.output if name}
        self._outer = outer
        if outer is not None:
            self.initializers = outer.initializers | self.initializers
            self._values = outer._values | self._values
            self._producers = outer._producers | self._producers
        self._consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(read_tensors(node)):
                self._consumers.setdefault(name, []).append(node)

    def inner_graphs(self) -> Iterator["LintGraph"]:
        """Yields the branches of each If and the bodies of each Loop and Scan, and theirs.

        Of an If whose condition is a constant TensorRT reads the branch that is taken only.
        """
        for node in self.nodes:
            if node.op_type not in WITH_SUBGRAPHS:
                continue
            known = self.constant(node.input[0]) if node.op_type == "If" else None
            if known is None:
                taken = node_subgraphs(node)
            else:
                taken = [attribute(node, "then_branch" if known.any() else "else_branch", None)]
            for subgraph in taken:
                inner = LintGraph(_model_of(subgraph, self.model), self)
                yield inner
                yield from inner.inner_graphs()

    def producer(self, tensor: str) -> onnx.NodeProto | None:
        """Returns the node that computes a tensor; None for inputs and initializers."""
        return self._producers.get(tensor)

    def consumers(self, tensor: str) -> list[onnx.NodeProto]:
        """Returns the nodes that read a tensor, in topological order."""
        return self._consumers.get(tensor, [])

    def of(self, *operators: str) -> Iterator[onnx.NodeProto]:
        """Yields the standard nodes with one of these operators."""
        for node in self.nodes:
            if node.op_type in operators and node.domain in ("", "ai.onnx"):
                yield node

    def shape(self, tensor: str) -> tuple[int, ...] | None:
        """Returns a tensor's shape; None where a part of it is not known."""
        if tensor in self.initializers:
            return tuple(self.initializers[tensor].dims)
        kind = self._values.get(tensor)
        if kind is None or not kind.HasField("shape"):
            return None
        if not all(dim.HasField("dim_value") for dim in kind.shape.dim):
            return None
        return tuple(dim.dim_value for dim in kind.shape.dim)

    def rank(self, tensor: str) -> int | None:
        """Returns how many axes a tensor has; None where that is not known."""
        if tensor in self.initializers:
            return len(self.initializers[tensor].dims)
        kind = self._values.get(tensor)
        return len(kind.shape.dim) if kind is not None and kind.HasField("shape") else None

    def elements(self, tensor: str) -> int:
        """Returns how many values a tensor has; 0 where its shape is not known."""
        shape = self.shape(tensor)
        return int(np.prod(shape, dtype=np.int64)) if shape is not None else 0

    def element_type(self, tensor: str) -> int:
        """Returns the `TensorProto` type of a tensor; `UNDEFINED` where it is not known."""
        if tensor in self.initializers:
            return int(self.initializers[tensor].data_type)
        kind = self._values.get(tensor)
        return int(kind.elem_type) if kind is not None else int(TensorProto.UNDEFINED)

    def constant(self, tensor: str) -> NDArray[Any] | None:
        """Returns a tensor's value where the file holds it, in an initializer or a Constant."""
        if tensor in self.initializers:
            return np.asarray(numpy_helper.to_array(self.initializers[tensor]))
        node = self.producer(tensor)
        if node is None or node.op_type != "Constant":
            return None
        values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        if "value" in values:
            return np.asarray(numpy_helper.to_array(values["value"]))
        plain = [values[name] for name in _PLAIN_CONSTANTS if name in values]
        return np.asarray(plain[0]) if plain else None

    def is_fixed(self, tensor: str) -> bool:
        """Returns whether a tensor follows from constants and shapes alone."""
        return tensor in self._fixed

    def is_folded(self, tensor: str) -> bool:
        """Returns whether a tensor follows from constants alone."""
        return tensor in self._folded

    @cached_property
    def _fixed(self) -> frozenset[str]:
        return self._follow(("Shape", "Size"))

    @cached_property
    def _folded(self) -> frozenset[str]:
        return self._follow(())

    def _follow(self, sources: tuple[str, ...]) -> frozenset[str]:
        known = set(self.initializers)
        if self._outer is not None:
            known |= self._outer._follow(sources)
        for node in self.nodes:
            if node.op_type in sources or all(name in known for name in read_tensors(node)):
                known |= set(node.output)
        return frozenset(known - {""})

    def is_weight(self, dequantize: onnx.NodeProto) -> bool:
        """Returns whether a DequantizeLinear stands behind a weight, not behind an activation."""
        return self.is_fixed(dequantize.input[0])

    def dequantizer(self, tensor: str) -> onnx.NodeProto | None:
        """Returns the DequantizeLinear that makes a tensor, through operators that only move it."""
        node = self.producer(tensor)
        while node is not None and node.op_type in MOVING:
            node = self.producer(node.input[0])
        return node if node is not None and node.op_type == DEQUANTIZE else None

    def integer_type(self, tensor: str) -> int | None:
        """Returns the `TensorProto` type that a tensor has before its DQ; None without one."""
        dequantize = self.dequantizer(tensor)
        return None if dequantize is None else self.element_type(dequantize.input[0])

    def is_integer_layer(self, node: onnx.NodeProto) -> bool:
        """Returns whether a Conv, ConvTranspose, Gemm or MatMul reads both operands through DQ."""
        return node.op_type in LAYERS and all(
            self.dequantizer(name) is not None for name in node.input[:2]
        )

    @cached_property
    def is_quantized(self) -> bool:
        """Whether there is any Q/DQ."""
        return any(node.op_type in (QUANTIZE, DEQUANTIZE) for node in self.nodes)


MOVING = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
"""Operators that move values and change none, so that a weight behind them stays a weight."""

_PLAIN_CONSTANTS = ("value_float", "value_int", "value_floats", "value_ints")


def is_blocked(dequantize: onnx.NodeProto) -> bool:
    """Returns whether a DequantizeLinear has a scale for each block of values."""
    return bool(attribute(dequantize, "block_size", 0))


def _model_of(subgraph: onnx.GraphProto, model: onnx.ModelProto) -> onnx.ModelProto:
    part = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    part.graph.CopyFrom(subgraph)
    return part


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """Returns the value of a node's attribute, text as `str`, or `default` where not given."""
    value = graph_reading.attribute(node, name, default)
    return value.decode() if isinstance(value, bytes) else value


def type_name(element_type: int) -> str:
    """Returns the name of a `TensorProto` type, such as INT8."""
    return str(TensorProto.DataType.Name(element_type))
