"""One layer quantized by itself, beside the float network that it reads from.

Several such layers share one network: what comes before them is computed once, in float, and each
has copies of its own of the nodes behind it, with its own results.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx
from onnx import helper

from artifacts.decided_outputs import read_choices
from artifacts.graph_reading import read_tensors
from compress.quantize.decisions import Decisions
from compress.quantize.graph import Array, Graph, rename_tensors
from compress.quantize.placement import QuantizedNode
from compress.quantize.prepared import PreparedNetwork

AXES_ARE_AN_INPUT = 18
"""The first opset in which ReduceMean reads its axes from a tensor."""


@dataclass(frozen=True, kw_only=True)
class LoneLayer:
    """A quantized layer that reads tensors of the float network.

    Attributes:
        name: the node's.
        result: the tensor that it computes.
        nodes: the layer and its Q/DQ pairs, in topological order.
        constants: what they read.
        mean_axes: all axes of the result but the channels'; none where the node has no weight,
            whose rounding would move the result's mean.
    """

    name: str
    result: str
    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, Array]
    mean_axes: tuple[int, ...]

    @classmethod
    def of(
        cls, prepared: PreparedNetwork, decisions: Decisions, item: QuantizedNode
    ) -> "LoneLayer":
        """Returns a layer as it is where nothing else is quantized."""
        source = prepared.graph.node(item.node)
        graph = prepared.insert_uncorrected(decisions, frozenset({item.node}))
        others = {node.name for node in prepared.graph.nodes} - {item.node}
        nodes = tuple(node for node in graph.nodes if node.name not in others)
        read = {name for node in nodes for name in read_tensors(node)}
        axes: tuple[int, ...] = ()
        if item.weight is not None:
            weight = prepared.graph.weights[source.input[item.weight]]
            rank = max(weight.ndim, item.output_axis + 1)
            axes = tuple(axis for axis in range(rank) if axis != item.output_axis)
        return cls(
            name=item.node,
            result=source.output[0],
            nodes=nodes,
            constants={name: graph.weights[name] for name in sorted(read & graph.weights.keys())},
            mean_axes=axes,
        )

    @property
    def shift(self) -> str:
        """The input of a branch that is added to its result, [1, …, channels, …, 1]."""
        return f"{self.name}/shift"

    def own(self, tensor: str) -> str:
        """Returns the name of what this layer makes of a tensor."""
        return f"{tensor}/{self.name}"

    def write_shift(self, opset: int) -> list[onnx.NodeProto]:
        """Returns the layer and what computes `shift`, by which the float result's mean is larger.

        Args:
            opset: of the network.
        """
        own, nodes = self._write_layer()
        less = f"{self.shift}/less"
        nodes.append(helper.make_node("Sub", [self.result, own[self.result]], [less]))
        mean = helper.make_node("ReduceMean", [less], [self.shift], keepdims=1)
        if opset < AXES_ARE_AN_INPUT:
            mean.attribute.append(helper.make_attribute("axes", self.mean_axes))
        else:
            axes = helper.make_node("Constant", [], [f"{less}/axes"], value_ints=self.mean_axes)
            mean.input.append(axes.output[0])
            nodes.append(axes)
        return [*nodes, mean]

    def write_branch(self, graph: Graph) -> tuple[list[onnx.NodeProto], frozenset[str]]:
        """Returns the layer with copies of all nodes behind it.

        The places that they read, where some are chosen, are those of the float network: near ties
        in another order are no noise of the layer.

        Args:
            graph: the float network.

        Returns:
            the nodes, and the tensors of the float network that they have their `own` of.
        """
        own, nodes = self._write_layer()
        if self.mean_axes:
            before = f"{own[self.result]}/before"
            nodes[-1].output[0] = before
            nodes.append(helper.make_node("Add", [before, self.shift], [own[self.result]]))
        choices = read_choices(graph.nodes, graph.outputs)
        for node in graph.nodes:
            if not own.keys().isdisjoint(read_tensors(node)):
                made = {name: self.own(name) for name in node.output if name}
                nodes.append(self._copy(node, own | made))
                own |= {name: twin for name, twin in made.items() if name not in choices}
        return nodes, frozenset(own)

    def _write_layer(self) -> tuple[dict[str, str], list[onnx.NodeProto]]:
        """Returns the names of what the layer's nodes compute, and copies that compute them."""
        own = {name: self.own(name) for node in self.nodes for name in node.output}
        return own, [self._copy(node, own) for node in self.nodes]

    def _copy(self, node: onnx.NodeProto, own: Mapping[str, str]) -> onnx.NodeProto:
        twin = rename_tensors(node, own)
        twin.name = self.own(node.name)
        return twin
