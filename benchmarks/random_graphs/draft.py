"""A graph that grows at one end, whose shapes are known."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
PICTURE = (1, 3, 12, 12)
MOST_VALUES = 20_000
"""Of a tensor: what repeats values is not drawn beyond."""


class UnfitError(Exception):
    """An operator cannot read the tensor at the end of the draft."""


class Draft:
    """Draws nodes behind the last one; each reads the tensor at the end.

    Args:
        rng: draws weights and options.

    Attributes:
        names: of the layers, operators and blocks that were drawn, in order.
        end: the name of the tensor at the end.
        shape: of that tensor.
        kept: names of tensors before the end that are results of the graph too.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.names: list[str] = []
        self.end, self.shape = "x", PICTURE
        self.kept: list[str] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    @property
    def rank(self) -> int:
        """How many axes the tensor at the end has."""
        return len(self.shape)

    def pick_axis(self, shortest: int = 1) -> int:
        """Returns an axis behind the batch's, at least so long.

        Raises:
            UnfitError: there is none.
        """
        fitting = [axis for axis in range(1, self.rank) if self.shape[axis] >= shortest]
        require(fitting)
        return int(self.rng.choice(fitting))

    def constant(self, value: Any) -> str:
        """Returns the name of a new constant; floats become float32, integers int64."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        elif array.dtype.kind == "i":
            array = array.astype(np.int64)
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int, axis: int = 0) -> NDArray[np.float32]:
        """Returns normal weights whose rows along an axis are of unlike loudness."""
        loudness = np.exp(0.8 * self.rng.standard_normal(shape[axis]))
        spread = loudness.reshape([-1 if place == axis else 1 for place in range(len(shape))])
        drawn = self.rng.standard_normal(shape) * spread
        return (drawn / np.sqrt(np.prod(shape) / shape[axis])).astype(np.float32)

    def add(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Appends a node; returns the name of its result."""
        return self.add_several(operator, inputs, 1, **attributes)[0]

    def add_several(
        self, operator: str, inputs: Sequence[str], count: int, **attributes: Any
    ) -> list[str]:
        """Appends a node with several results; returns their names."""
        stem = f"t{len(self._nodes)}"
        results = [f"{stem}_{place}" for place in range(count)]
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, results, name, **attributes))
        return results

    def finish(self, name: str, result: str) -> None:
        """Moves the end to a node's result, whose shape is inferred."""
        self.names.append(name)
        self.end = result
        output = self.to_model().graph.output[-1]
        self.shape = tuple(item.dim_value for item in output.type.tensor_type.shape.dim)

    def to_model(self) -> onnx.ModelProto:
        """Returns the graph up to the end as a model, with all shapes."""
        ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, PICTURE)]
        results = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in dict.fromkeys([*self.kept, self.end])
        ]
        read = {name for node in self._nodes for name in node.input}
        constants = [item for item in self._constants if item.name in read]
        graph = helper.make_graph(self._nodes, "random", ends, results, constants)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)

    def undo_to(self, count: int) -> None:
        """Takes out all nodes behind the first `count`."""
        del self._nodes[count:]

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)


def require(condition: object) -> None:
    """Raises `UnfitError` unless the condition holds."""
    if not condition:
        raise UnfitError
