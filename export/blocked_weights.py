"""Weights with a scale per block, in the forms that TensorRT builds.

It has blocks for products of matrices only, and TensorRT-RTX 1.7 beside INT8 activations only where
both operands have two axes and neither is turned: else the builder fails without naming a node.
What is written computes the same. Weights of convolutions become float, as TensorRT would unpack
them; those of products stay in their blocks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from artifacts.graph_reading import NewNames, names_in
from artifacts.node_attributes import set_attributes
from artifacts.shape_inference import infer_shapes
from artifacts.unread_constants import drop_unread_constants
from artifacts.unread_nodes import keep_read_nodes
from export.lint.graph import DEQUANTIZE, LAYERS, LintGraph, attribute, is_blocked

_MATRIX_AXES = 2


def write_blocked_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network with its blocked weights in forms that TensorRT builds.

    Args:
        model: in topological order; returned itself where nothing is to be done.
    """
    if not any(node.op_type == DEQUANTIZE and is_blocked(node) for node in model.graph.node):
        return model
    writer = _Writer(LintGraph(infer_shapes(model)))
    nodes = [new for node in model.graph.node for new in writer.write(node)]
    outputs = [item.name for item in model.graph.output]
    written = onnx.ModelProto()
    written.CopyFrom(model)
    del written.graph.node[:], written.graph.value_info[:]
    written.graph.node.extend(keep_read_nodes(nodes, outputs))
    written.graph.initializer.extend(writer.constants)
    drop_unread_constants(written.graph)
    return infer_shapes(written)


class _Writer:
    """Writes one node after the other.

    Args:
        graph: with shapes; it is not changed.
    """

    def __init__(self, graph: LintGraph) -> None:
        self.constants: list[onnx.TensorProto] = []
        self._graph = graph
        self._names = NewNames(names_in(graph.model.graph))
        self._unpacked: dict[str, str] = {}

    def write(self, node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
        """Returns what stands for a node: itself, where it reads no blocks or TensorRT has it."""
        weight = self._graph.producer(node.input[1]) if node.op_type in LAYERS else None
        if weight is None or not is_blocked(weight):
            return [node]
        values = [self._graph.constant(name) for name in weight.input]
        operands = [value for value in values if value is not None]
        if len(operands) < len(values):
            return [node]
        if node.op_type in ("Conv", "ConvTranspose"):
            return [self._read_float(node, weight, operands)]
        if self._graph.dequantizer(node.input[0]) is None:
            return [node]
        if node.op_type == "Gemm" and attribute(node, "transB", 0):
            return self._turn(node, weight, operands)
        return self._flatten(node) if node.op_type == "MatMul" else [node]

    def _read_float(
        self, node: onnx.NodeProto, weight: onnx.NodeProto, operands: Sequence[NDArray[Any]]
    ) -> onnx.NodeProto:
        """Returns a convolution that reads the weight as the product of integers and scales."""
        name = weight.output[0]
        if name not in self._unpacked:
            axis, block = attribute(weight, "axis", 1), attribute(weight, "block_size", 0)
            integers, scales, *zero_points = operands
            size = integers.shape[axis]
            scales, *zero_points = (
                np.repeat(part, block, axis).take(range(size), axis)
                for part in (scales, *zero_points)
            )
            steps = integers.astype(scales.dtype)
            for zero_point in zero_points:
                steps -= zero_point.astype(scales.dtype)
            self._unpacked[name] = self._hold(f"{name}_unpacked", steps * scales)
        read = onnx.NodeProto()
        read.CopyFrom(node)
        read.input[1] = self._unpacked[name]
        return read

    def _turn(
        self, node: onnx.NodeProto, weight: onnx.NodeProto, operands: Sequence[NDArray[Any]]
    ) -> list[onnx.NodeProto]:
        """Returns a Gemm whose weight is stored as [in, out]."""
        turned = onnx.NodeProto()
        turned.CopyFrom(weight)
        turned.name, turned.output[0] = (
            self._names.take(f"{stem}_turned") for stem in (weight.name, weight.output[0])
        )
        turned.input[:] = [
            self._hold(f"{name}_turned", np.ascontiguousarray(value.T))
            for name, value in zip(weight.input, operands, strict=True)
        ]
        set_attributes(turned, axis=1 - attribute(weight, "axis", 1) % _MATRIX_AXES)
        gemm = onnx.NodeProto()
        gemm.CopyFrom(node)
        gemm.input[1] = turned.output[0]
        set_attributes(gemm, transB=0)
        return [turned, gemm]

    def _flatten(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Returns a product of two matrices between two Reshapes."""
        read, result = (self._graph.shape(name) for name in (node.input[0], node.output[0]))
        weight = self._graph.shape(node.input[1])
        if not read or not result or not weight or len(weight) != _MATRIX_AXES:
            return [node]
        if len(read) <= _MATRIX_AXES:
            return [node]
        rows, product = (self._names.take(f"{node.name}_{end}") for end in ("rows", "product"))
        to_rows = self._hold(f"{node.name}_rows_shape", np.array([-1, read[-1]]))
        to_result = self._hold(f"{node.name}_result_shape", np.array(result))
        matmul = onnx.NodeProto()
        matmul.CopyFrom(node)
        matmul.input[0], matmul.output[0] = rows, product
        return [
            helper.make_node("Reshape", [node.input[0], to_rows], [rows], rows),
            matmul,
            helper.make_node("Reshape", [product, to_result], node.output, product),
        ]

    def _hold(self, stem: str, value: NDArray[Any]) -> str:
        """Stores a constant; returns its name."""
        name = self._names.take(stem)
        self.constants.append(numpy_helper.from_array(value, name))
        return name
