"""An ONNX graph as a torch module, so that what is trained is what ships."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.onnx_inputs import input_tensors
from compress.qat.operators import OPERATORS

QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear"})


ALIKE = 1e-3
"""Largest error of a batch's results, as a share of the difference between its samples' results."""
ROUNDED = 1e-5
"""What sums in another order may add to it, as a share of the results."""


class OnnxModule(nn.Module):
    """Runs the nodes of a graph one by one.

    Each sample of a batch gets the result that the graph gives for it alone: a graph is made for
    one size of batch, and may say so in any Reshape, Slice or mean. Samples are therefore computed
    one after the other, unless `allow_batches` found that together they give the same.

    Args:
        model: of static shapes; its constants become buffers.

    Attributes:
        model: the graph, without a copy.
        input_names: of the graph, in the order of the arguments.
        output_names: of the graph.
        takes_batches: whether the samples of a batch are computed together.

    Raises:
        InputError: it has operators that are not known here; all are named.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = model.graph
        constants = {tensor.name: tensor for tensor in graph.initializer}
        unknown = {node.op_type for node in graph.node} - OPERATORS.keys() - self.own_operators
        if unknown:
            raise InputError(
                f"the network has operators that cannot be trained: {', '.join(sorted(unknown))}",
                f"among {', '.join(sorted(OPERATORS))}",
            )
        self.model = model
        shapes = input_tensors(model)
        self.input_names = tuple(shapes)
        self.output_names = tuple(item.name for item in graph.output)
        self._buffer_names = {}
        for index, (name, tensor) in enumerate(constants.items()):
            self._buffer_names[name] = f"constant_{index}"
            self.register_buffer(f"constant_{index}", _to_torch(tensor), persistent=False)
        self._attributes = [_attributes(node) for node in graph.node]
        self._freed = _last_uses(graph)
        self._dtypes = [getattr(torch, tensor.dtype) for tensor in shapes.values()]
        self._batches = [max((*tensor.shape, 1)[0], 1) for tensor in shapes.values()]
        self._reshaped: dict[int, tuple[int, torch.Size]] = {}
        self.takes_batches = False

    own_operators: frozenset[str] = frozenset()

    def forward(self, *inputs: Tensor) -> dict[str, Tensor]:
        """Returns the graph's outputs by name, [N, ...] each; so are its inputs."""
        inputs = tuple(
            value if value.is_floating_point() and dtype.is_floating_point else value.to(dtype)
            for value, dtype in zip(inputs, self._dtypes, strict=True)
        )
        if self.takes_batches and len(inputs[0]) > 1:
            return self._run(inputs)
        apart = [self._run_one(sample) for sample in _split(inputs)]
        return {name: torch.cat([one[name] for one in apart]) for name in self.output_names}

    @torch.no_grad()
    def allow_batches(self, *samples: Tensor) -> bool:
        """Lets batches be computed together from now on, if that gives each sample its own result.

        A Reshape to a constant shape then takes the batch into its first axis; whether that was
        right is seen in the results, as everything else that a graph may do to a batch.

        Args:
            samples: two that differ, [2, ...] of each input.

        Returns:
            whether batches are computed together.
        """
        self._reshaped = {}
        alone = [self._run_one(sample, self._reshaped) for sample in _split(samples)]
        try:
            together = self._run(samples)
        except (RuntimeError, ValueError, IndexError):
            self.takes_batches = False
        else:
            self.takes_batches = all(
                _is_alike(together[name], alone[0][name], alone[1][name])
                for name in self.output_names
            )
        return self.takes_batches

    def _run_one(
        self, sample: Sequence[Tensor], reshaped: dict[int, tuple[int, torch.Size]] | None = None
    ) -> dict[str, Tensor]:
        """Returns the outputs of one sample [1, ...], repeated where the graph takes several."""
        repeated = [
            value.expand(batch, *value.shape[1:])
            for value, batch in zip(sample, self._batches, strict=True)
        ]
        outputs = self._run(repeated, reshaped)
        return {
            name: value[:1] if value.shape[:1] == (self._batches[0],) else value[None]
            for name, value in outputs.items()
        }

    def _run(
        self,
        inputs: Sequence[Tensor],
        reshaped: dict[int, tuple[int, torch.Size]] | None = None,
    ) -> dict[str, Tensor]:
        """Returns the graph's outputs; notes the size and the new shape of what is reshaped."""
        values: dict[str, Any] = dict(zip(self.input_names, inputs, strict=True))
        for index, node in enumerate(self.model.graph.node):
            operands = [self._value(values, name) for name in node.input]
            if index in self._reshaped and reshaped is None:
                result = _reshape_batch(operands[0], *self._reshaped[index])
            else:
                result = self.run_node(index, node, operands)
            if reshaped is not None and node.op_type == "Reshape":
                reshaped[index] = operands[0].numel(), result.shape
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


def _split(inputs: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Yields the inputs of each sample, [1, ...] each."""
    return zip(*(value.split(1) for value in inputs), strict=True)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    found = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    return {**found, "_outputs": len(node.output)}


def _to_torch(tensor: onnx.TensorProto) -> Tensor:
    array = numpy_helper.to_array(tensor)
    if tensor.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4):
        array = array.astype(np.int8)
    return torch.from_numpy(np.array(array))


def _reshape_batch(x: Tensor, size: int, shape: torch.Size) -> Tensor:
    """Reshapes as it was done with `size` values, the first axis growing with the batch."""
    if not shape or x.numel() == size:
        return x.reshape(shape)
    return x.reshape(shape[0] * x.numel() // size, *shape[1:])


def _is_alike(together: Tensor, first: Tensor, second: Tensor) -> bool:
    """Returns whether a batch's result holds the results of its two samples."""
    alone = torch.cat([first, second])
    if together.shape != alone.shape:
        return False
    error = (together.double() - alone.double()).norm()
    allowed = ALIKE * (first.double() - second.double()).norm() + ROUNDED * alone.double().norm()
    return bool(error <= allowed)


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
