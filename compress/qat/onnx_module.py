"""An ONNX graph as a torch module, so that what is trained is what ships."""

from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.ownership import read_heads
from compress.qat.operators import OPERATORS

QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear"})


class OnnxModule(nn.Module):
    """Runs the nodes of a graph one by one.

    Args:
        model: of static shapes with one input; its constants become buffers.

    Attributes:
        model: the graph, without a copy.
        output_names: of the graph.
        heads_metadata: outputs of each head.

    Raises:
        InputError: it has several inputs, or operators that are not known here; all are named.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = model.graph
        constants = {tensor.name: tensor for tensor in graph.initializer}
        inputs = [item.name for item in graph.input if item.name not in constants]
        if len(inputs) != 1:
            raise InputError(f"the network has {len(inputs)} inputs", "one")
        unknown = {node.op_type for node in graph.node} - OPERATORS.keys() - self.own_operators
        if unknown:
            raise InputError(
                f"the network has operators that cannot be trained: {', '.join(sorted(unknown))}",
                f"among {', '.join(sorted(OPERATORS))}",
            )
        self.model = model
        self.input_name = inputs[0]
        self.output_names = tuple(item.name for item in graph.output)
        heads = read_heads(model)
        self.heads_metadata = {name: {"outputs": list(names)} for name, names in heads.items()}
        self._buffer_names = {}
        for index, (name, tensor) in enumerate(constants.items()):
            self._buffer_names[name] = f"constant_{index}"
            self.register_buffer(f"constant_{index}", _to_torch(tensor), persistent=False)
        self._attributes = [_attributes(node) for node in graph.node]
        self._freed = _last_uses(graph)

    own_operators: frozenset[str] = frozenset()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Returns the graph's outputs by name."""
        values: dict[str, Any] = {self.input_name: x}
        for index, node in enumerate(self.model.graph.node):
            inputs = [self._value(values, name) for name in node.input]
            result = self.run_node(index, node, inputs)
            results = result if isinstance(result, tuple) else (result,)
            values.update(zip(node.output, results, strict=False))
            for name in self._freed[index]:
                values.pop(name, None)
        return {name: self._value(values, name) for name in self.output_names}

    def run_node(self, index: int, node: onnx.NodeProto, inputs: list[Any]) -> Any:
        """Returns a node's result; subclasses add operators here."""
        return OPERATORS[node.op_type](inputs, self._attributes[index])

    def constant(self, name: str) -> Tensor | None:
        """Returns an initializer; None if there is none of that name."""
        buffer = self._buffer_names.get(name)
        return None if buffer is None else self.get_buffer(buffer)

    def _value(self, values: dict[str, Any], name: str) -> Any:
        if not name:
            return None
        return values[name] if name in values else self.constant(name)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    found = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    return {**found, "_outputs": len(node.output)}


def _to_torch(tensor: onnx.TensorProto) -> Tensor:
    array = numpy_helper.to_array(tensor)
    if tensor.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4):
        array = array.astype(np.int8)
    return torch.from_numpy(np.array(array))


def _last_uses(graph: onnx.GraphProto) -> list[list[str]]:
    """Returns, per node, the tensors that nothing after it reads."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        last.update(dict.fromkeys((*node.input, *node.output), index))
    for item in graph.output:
        last.pop(item.name, None)
    freed: list[list[str]] = [[] for _ in graph.node]
    for name, index in last.items():
        freed[index].append(name)
    return freed
