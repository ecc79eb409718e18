"""Scale tying: integers flow through data movement from where a tensor is made to where it is read.

    Conv - Relu - Concat - Reshape - Transpose - Reshape - Gather - Conv

computes the Concat and the channel shuffle on float32 if the quantizer stands before the last Conv.
With the quantizer right behind the Relu, the first Conv writes integers, and everything between
moves a quarter of the bytes. That needs one scale and zero_point for all inputs and the output of a
Concat, and for all that is joined to it by movement: these tensors are *tied*.

A node takes part if each of its results is read by a layer in integers, or by another node that
takes part. Averages and layers that are kept in float may read the results too: they get the
dequantized values, whose rounding an average evens out. An Identity ends a tie: what it returns is
quantized again, with a scale of its own (`compress.quantize.requantize`). Any other reader (the
user, a Sigmoid, a decoder) wants float values, so the node declines, and so do the nodes before it
that feed only it.
"""

from collections.abc import Iterable, Sequence

import onnx

from compress.quantize.graph import Graph
from compress.quantize.placement.contract import Declined, QuantizedNode
from compress.quantize.placement.layers import LAYERS
from compress.quantize.placement.movement import moved_inputs

SHRINKING = frozenset({"MaxPool", "Slice", "Gather"})
"""They read more than they write: in front of them a quantizer pays only if it is free."""
TOLERANT = LAYERS | {"AveragePool", "GlobalAveragePool", "ReduceMean"}
UNWANTED = "no layer reads its result in integers"
CONSTANT_PART = "one of the tensors that it joins is a constant"


def tie_movement(
    graph: Graph, quantized: Iterable[QuantizedNode], keep_float: frozenset[str] = frozenset()
) -> tuple[list[QuantizedNode], list[Declined]]:
    """Finds the nodes that shall move integers, and ties their tensors.

    Args:
        graph: the simplified float graph.
        quantized: the layers and Adds that read integers.
        keep_float: names of nodes that shall move floats.

    Returns:
        the nodes, each with the label of its tied tensors, in topological order; and the Concats
        that stay in float though a quantized layer reads them, with the reason.
    """
    flow = _Flow(graph, quantized)
    declined: list[Declined] = []
    for node in reversed(graph.nodes):
        positions = (0,) if node.op_type == "Identity" else moved_inputs(graph, node)
        reason = "keep_float names it" if node.name in keep_float else flow.find_obstacle(node)
        if positions and not reason:
            flow.moved[node.name] = positions
        elif positions and reason == UNWANTED:
            flow.tolerant.add(node.name)
        elif node.op_type == "Concat" and flow.is_wanted(node):
            declined.append(Declined(node=node.name, reason=reason or CONSTANT_PART))
    moving = [node for node in graph.nodes if node.name in flow.moved]
    for node in moving:
        if node.op_type == "Identity":
            del flow.moved[node.name]
    for node in moving:
        if node.op_type in SHRINKING and not flow.is_free(node.input[0]):
            del flow.moved[node.name]
    return _label([node for node in moving if node.name in flow.moved], flow.moved), declined[::-1]


class _Flow:
    """Who reads and moves integers, as far as it is known on the way from the outputs back.

    Attributes:
        moved: by node name, the positions of the inputs whose integers it moves.
        tolerant: names of nodes that move values to averages only.
    """

    def __init__(self, graph: Graph, quantized: Iterable[QuantizedNode]) -> None:
        self._graph = graph
        self._layers = {item.node: item.activations for item in quantized}
        self.moved: dict[str, tuple[int, ...]] = {}
        self.tolerant: set[str] = set()

    def find_obstacle(self, node: onnx.NodeProto) -> str:
        """Returns why a node cannot move integers; empty if it can."""
        for tensor in node.output:
            if tensor in self._graph.outputs:
                return f"its result '{tensor}' is an output of the network"
            for reader in self._graph.consumers(tensor):
                is_tolerant = reader.op_type in TOLERANT or reader.name in self.tolerant
                if not is_tolerant and not self._reads_integers(reader, tensor):
                    return f"'{reader.name}' ({reader.op_type}) reads its result in float"
        return "" if self.is_wanted(node) else UNWANTED

    def is_wanted(self, node: onnx.NodeProto) -> bool:
        """Whether at least one reader of a node's results reads integers."""
        return any(
            self._reads_integers(reader, tensor)
            for tensor in node.output
            for reader in self._graph.consumers(tensor)
        )

    def is_free(self, tensor: str) -> bool:
        """Whether a tensor is in integers anyway, or the layer that makes it can write them."""
        maker = self._graph.producer(tensor)
        if maker is None:
            return False
        readers = self._graph.consumers(tensor)
        return maker.name in self.moved or all(
            self._reads_integers(reader, tensor) for reader in readers
        )

    def _reads_integers(self, reader: onnx.NodeProto, tensor: str) -> bool:
        positions = self._layers.get(reader.name) or self.moved.get(reader.name, ())
        read = {position for position, name in enumerate(reader.input) if name == tensor}
        return bool(read) and read <= set(positions)


def _label(
    moving: Sequence[onnx.NodeProto], moved: dict[str, tuple[int, ...]]
) -> list[QuantizedNode]:
    """Joins the tensors of each node; only inputs from outside get a Q/DQ pair."""
    made = {tensor for node in moving for tensor in node.output}
    parents: dict[str, str] = {}

    def find(tensor: str) -> str:
        while parents.setdefault(tensor, tensor) != tensor:
            parents[tensor] = parents[parents[tensor]]
            tensor = parents[tensor]
        return tensor

    for node in moving:
        joined = [node.input[position] for position in moved[node.name]]
        first, *others = joined + [str(name) for name in node.output]
        for tensor in others:
            parents[find(tensor)] = find(first)
    return [
        QuantizedNode(
            node=node.name,
            activations=tuple(
                position for position in moved[node.name] if node.input[position] not in made
            ),
            tied=find(node.output[0]),
        )
        for node in moving
    ]
