"""Cuts a graph into the steps of the streaming pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from artifacts.decided_outputs import list_chosen
from artifacts.graph_reading import read_tensors
from compress.quantize.graph import Graph
from compress.quantize.placement import QuantizedNode


@dataclass(frozen=True, kw_only=True)
class Step:
    """Nodes that are computed together: one layer, or a run of float or of moving ones.

    Attributes:
        nodes: in topological order.
        inputs: activations that come from earlier steps.
        outputs: activations that later steps, or the user, read.
        freed: activations that no later step reads.
        quantized: what to do with the node, if it is to compute in integers.
        float_layer: the axes of the node, if it is a layer that stays in float.
        moved: activations whose integers the nodes move; () if they compute.
    """

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    freed: tuple[str, ...] = ()
    quantized: QuantizedNode | None = None
    float_layer: QuantizedNode | None = None
    moved: tuple[str, ...] = ()

    @property
    def entering(self) -> dict[str, onnx.NodeProto]:
        """The activations that are quantized on their way in, each with its first reader."""
        if self.quantized is not None:
            node = self.nodes[0]
            return {node.input[position]: node for position in self.quantized.activations}
        readers = {name: node for node in reversed(self.nodes) for name in node.input}
        return {tensor: readers[tensor] for tensor in self.moved if tensor in self.inputs}


@dataclass
class _Draft:
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    quantized: QuantizedNode | None = None
    float_layer: QuantizedNode | None = None
    moved: dict[str, None] | None = None

    def takes(self, choice: QuantizedNode | None) -> bool:
        """Whether a node with that choice may be computed along with the nodes so far."""
        if self.nodes and list_chosen(self.nodes[-1]):
            return False
        if choice is None:
            return self.quantized is None and self.float_layer is None and self.moved is None
        return bool(choice.tied) and self.moved is not None


def plan_steps(
    graph: Graph,
    quantized: Mapping[str, QuantizedNode],
    float_layers: Mapping[str, QuantizedNode] | None = None,
) -> list[Step]:
    """Returns the steps in order; every activation is freed after its last reader.

    Args:
        graph: the network.
        quantized: the nodes that compute in integers, by name.
        float_layers: those layers in float that get a step of their own.
    """
    alone = float_layers or {}
    drafts: list[_Draft] = []
    for node in graph.nodes:
        choice = quantized.get(node.name)
        if not drafts or node.name in alone or not drafts[-1].takes(choice):
            drafts.append(_start(choice, alone.get(node.name)))
        drafts[-1].nodes.append(node)
        moved = drafts[-1].moved
        if choice is not None and moved is not None:
            moved |= dict.fromkeys(node.input[position] for position in choice.activations)
    last_reader = {
        name: position
        for position, draft in enumerate(drafts)
        for node in draft.nodes
        for name in read_tensors(node)
    }
    kept = set(graph.outputs)
    steps = []
    for position, draft in enumerate(drafts):
        made = [name for node in draft.nodes for name in node.output if name]
        read = dict.fromkeys(name for node in draft.nodes for name in read_tensors(node))
        inputs = tuple(name for name in read if name not in graph.weights and name not in set(made))
        outputs = tuple(
            name for name in made if name in kept or last_reader.get(name, -1) > position
        )
        freed = tuple(name for name in inputs if name not in kept and last_reader[name] == position)
        steps.append(
            Step(
                nodes=tuple(draft.nodes),
                inputs=inputs,
                outputs=outputs,
                freed=freed,
                quantized=draft.quantized,
                float_layer=draft.float_layer,
                moved=tuple(draft.moved or ()),
            )
        )
    return steps


def _start(choice: QuantizedNode | None, float_layer: QuantizedNode | None) -> _Draft:
    if choice is None:
        return _Draft(float_layer=float_layer)
    return _Draft(moved={}) if choice.tied else _Draft(quantized=choice)
