"""A float network that is ready to be quantized, and the models that decisions make of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx

from compress.quantize.decisions import Decisions
from compress.quantize.graph import Graph
from compress.quantize.insert import insert_qdq
from compress.quantize.placement import Declined, Placement, QuantizedNode, find_read
from compress.quantize.placement.layers import LAYERS, quantize_layer
from compress.quantize.repairs.centered_ranges import CenteredRange, uncenter
from compress.quantize.repairs.channel_scales import fold_idle_scales
from compress.quantize.repairs.joined_scales import fold_idle_joined
from compress.quantize.survey import Survey


@dataclass(frozen=True, kw_only=True)
class PreparedNetwork:
    """What every quantization of one network starts from.

    Attributes:
        graph: simplified and equalized, still in float; its results are those of the network.
        placement: chooses edges and integers.
        quantized: the nodes to quantize, in topological order.
        declined: nodes that were looked at and stay in float, with the reason.
        simplified: what was folded or rescaled, a line each.
        weights_only: activations stay in float.
        kept: names of nodes that the caller keeps in float.
        survey: values of the tensors that ranges were asked for so far.
        centered: the activations that were moved to use all integers.
    """

    graph: Graph
    placement: Placement
    quantized: tuple[QuantizedNode, ...]
    declined: tuple[Declined, ...]
    simplified: tuple[str, ...]
    weights_only: bool = False
    kept: frozenset[str] = frozenset()
    survey: Survey = field(default_factory=dict)
    centered: tuple[CenteredRange, ...] = ()

    def with_float_nodes(self, names: frozenset[str]) -> "PreparedNetwork":
        """Returns the same network with the nodes called `names` kept in float as well."""
        kept = self.kept | names
        quantized, declined = self.placement.place(self.graph, kept)
        if self.weights_only:
            quantized = [
                replace(item, activations=(), tied="")
                for item in quantized
                if item.weight is not None
            ]
        network = replace(self, quantized=tuple(quantized), declined=tuple(declined), kept=kept)
        return network._without_idle_ranges()

    def find_float_layers(self) -> dict[str, QuantizedNode]:
        """Returns the layers in float whose weights may make up for errors, and their axes."""
        chosen = {item.node for item in self.quantized}
        answers = [
            quantize_layer(self.graph, node)
            for node in self.graph.nodes
            if node.op_type in LAYERS and node.name not in chosen
        ]
        return {
            item.node: replace(item, activations=())
            for item in answers
            if isinstance(item, QuantizedNode)
        }

    def _without_idle_ranges(self) -> "PreparedNetwork":
        """Moves back what no node reads in integers any more."""
        read = find_read(self.graph, self.quantized)
        idle = [item for item in self.centered if not read & set(item.region.tensors)]
        if not idle:
            return self
        centered = tuple(item for item in self.centered if item not in idle)
        return replace(self, graph=uncenter(self.graph, idle), centered=centered)

    def write_model(self, decisions: Decisions) -> onnx.ModelProto:
        """Returns the network with Q/DQ pairs.

        Args:
            decisions: qparams and integers for all `quantized` nodes.
        """
        return self._write(self.quantized, decisions)

    def write_beginning(self, decisions: Decisions, count: int) -> onnx.ModelProto:
        """Returns the network with its first `count` nodes quantized, and all behind them in float.

        Args:
            decisions: qparams and integers for all `quantized` nodes.
            count: fewer than these.
        """
        places = {node.name: place for place, node in enumerate(self.graph.nodes)}
        end = places[self.quantized[count].node]
        begun = {name for name, place in places.items() if place < end}
        kept = replace(
            decisions,
            biases={name: bias for name, bias in decisions.biases.items() if name in begun},
            float_weights={
                name: weight for name, weight in decisions.float_weights.items() if name in begun
            },
            overrides={
                name: value
                for name, value in decisions.overrides.items()
                if name not in self.graph.weights or self._makes_offset(name) in begun
            },
        )
        return self._insert_pairs(self.quantized[:count], kept).to_model()

    def _makes_offset(self, constant: str) -> str:
        """Returns the name of the MatMul whose result a constant is added to."""
        (add,) = self.graph.consumers(constant)
        makers = (self.graph.producer(name) for name in add.input if name != constant)
        return next(str(maker.name) for maker in makers if maker is not None)

    def write_float(self) -> onnx.ModelProto:
        """Returns the network in float, without what only helps integers."""
        graph = uncenter(self.graph, self.centered)
        self.placement.write_late_forms(graph, ())
        fold_idle_scales(graph)
        fold_idle_joined(graph)
        return graph.to_model()

    def write_uncorrected(
        self, decisions: Decisions, only: frozenset[str] | None = None
    ) -> onnx.ModelProto:
        """Returns the network with Q/DQ pairs by decisions for a network that quantizes more.

        Biases stay as they are, and weights make up for nothing but their own layer's rounding:
        they were corrected for all that is quantized before them.

        Args:
            decisions: qparams and integers; nodes without them stay in float.
            only: names of the nodes to quantize; None for all.
        """
        return self._write(*self._uncorrected(decisions, only))

    def insert_uncorrected(self, decisions: Decisions, only: frozenset[str]) -> Graph:
        """Returns the graph of `write_uncorrected` with all float nodes as they are."""
        graph = self.graph.copy()
        self._insert(graph, *self._uncorrected(decisions, only))
        return graph

    def _uncorrected(
        self, decisions: Decisions, only: frozenset[str] | None
    ) -> tuple[list[QuantizedNode], Decisions]:
        chosen = [
            item
            for item in self.quantized
            if (only is None or item.node in only) and self._is_decided(item, decisions)
        ]
        weights = decisions.weights | decisions.alone
        return chosen, replace(
            decisions, weights=weights, overrides={}, biases={}, float_weights={}
        )

    def _write(self, quantized: Sequence[QuantizedNode], decisions: Decisions) -> onnx.ModelProto:
        graph = self._insert_pairs(quantized, decisions)
        fold_idle_scales(graph)
        fold_idle_joined(graph)
        return graph.to_model()

    def _insert_pairs(self, quantized: Sequence[QuantizedNode], decisions: Decisions) -> Graph:
        """Returns the graph with Q/DQ pairs, and all products that were put in for some of them."""
        graph = self.graph.copy()
        self.placement.write_late_forms(graph, {item.node for item in quantized})
        self._insert(graph, quantized, decisions)
        return graph

    def _insert(
        self, graph: Graph, quantized: Sequence[QuantizedNode], decisions: Decisions
    ) -> None:
        insert_qdq(graph, quantized, decisions, self.placement.find_passed(graph, quantized))

    def _is_decided(self, item: QuantizedNode, decisions: Decisions) -> bool:
        node = self.graph.node(item.node)
        tensors = [node.input[position] for position in item.activations]
        has_weight = item.weight is None or item.node in decisions.weights
        return has_weight and all(tensor in decisions.activations for tensor in tensors)
