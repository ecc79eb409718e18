"""Shapes and stored types of a graph's tensors, seen through dequantization and mere views."""

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError

if TYPE_CHECKING:
    import onnx

VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
"""Operators that give a tensor another shape without touching its bytes."""
DEQUANTIZE = "DequantizeLinear"
_BITS = {
    "FLOAT": 32, "FLOAT16": 16, "BFLOAT16": 16, "DOUBLE": 64, "INT8": 8, "UINT8": 8, "BOOL": 8,
    "INT16": 16, "UINT16": 16, "INT32": 32, "UINT32": 32, "INT64": 64, "UINT64": 64,
    "INT4": 4, "UINT4": 4, "INT2": 2, "UINT2": 2, "FLOAT4E2M1": 4,
}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it lies in memory.

    Attributes:
        name: the tensor that is stored, behind views and DequantizeLinear.
        shape: its dimensions.
        dtype: ONNX's name of its type, such as "FLOAT" or "INT8".
        is_constant: True for a weight or what is computed from weights alone.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_constant: bool

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> float:
        """Bytes in memory; two 4-bit numbers share one."""
        return self.count * _BITS.get(self.dtype, 8) / 8


class GraphTensors:
    """Looks up the tensors of a model with static, inferred shapes.

    Args:
        model: the model, as `artifacts.onnx_file.load_onnx` gives it.
    """

    def __init__(self, model: "onnx.ModelProto") -> None:
        self.model = model
        self._types: dict[str, tuple[tuple[int, ...] | None, str]] = {}
        self._read_types()
        self.producers = {name: node for node in model.graph.node for name in node.output if name}
        self.consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in node.input:
                self.consumers[name].append(node)
        self.inputs = {value.name for value in model.graph.input}
        self.outputs = {value.name for value in model.graph.output}
        self._constants = {tensor.name for tensor in model.graph.initializer}
        for node in model.graph.node:
            if all(name in self._constants for name in node.input if name):
                self._constants.update(node.output)

    def _read_types(self) -> None:
        from onnx import TensorProto

        graph = self.model.graph
        for value in [*graph.input, *graph.value_info, *graph.output]:
            kind = value.type.tensor_type
            dims: list[int] = [dim.dim_value for dim in kind.shape.dim]
            known = kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim)
            shape = tuple(dims) if known else None
            self._types[value.name] = (shape, TensorProto.DataType.Name(kind.elem_type))
        for tensor in graph.initializer:
            name = TensorProto.DataType.Name(tensor.data_type)
            self._types[tensor.name] = (tuple(tensor.dims), name)

    def is_constant(self, name: str) -> bool:
        """Returns True for weights and what follows from weights alone."""
        return name in self._constants

    def is_known(self, name: str) -> bool:
        """Returns True where shape inference tells a tensor's dimensions."""
        return self._types.get(name, (None, ""))[0] is not None

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a tensor's dimensions.

        Raises:
            InputError: shape inference does not tell them.
        """
        shape = self._types.get(name, (None, ""))[0]
        if shape is None:
            raise InputError(
                f"the shape of tensor '{name}' cannot be inferred",
                "static shapes",
                "fix the inputs with --input-shape, or simplify the model",
            )
        return shape

    def dtype(self, name: str) -> str:
        """Returns ONNX's name of a tensor's type."""
        return self._types.get(name, (None, "FLOAT"))[1]

    def source(self, name: str) -> str:
        """Returns the tensor that is really read: before views and DequantizeLinear."""
        node = self.producers.get(name)
        while node is not None and (node.op_type in VIEWS or node.op_type == DEQUANTIZE):
            name = node.input[0]
            node = self.producers.get(name)
        return name

    def stored(self, name: str) -> StoredTensor:
        """Returns the tensor that lies in memory behind `name`."""
        source = self.source(name)
        return StoredTensor(
            source, self.shape(source), self.dtype(source), self.is_constant(source)
        )


def attribute(node: Any, name: str, default: Any) -> Any:
    """Returns a node's attribute, or the default."""
    from onnx.helper import get_attribute_value

    for item in node.attribute:
        if item.name == name:
            return get_attribute_value(item)
    return default
