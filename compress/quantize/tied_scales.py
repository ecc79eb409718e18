"""Scales that several tensors share, because integers move between them unchanged.

A tie with several sources (the inputs of a Concat) has one scale for the values of all of them.
"""

from collections.abc import Mapping, Sequence

from compress.quantize.graph import Graph
from compress.quantize.placement import QuantizedNode
from compress.quantize.qparams import QParams


class TiedScales:
    """Which tensors share their qparams.

    Args:
        graph: the simplified float graph.
        quantized: the nodes to quantize; those with a `tied` label tie their tensors.
    """

    def __init__(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> None:
        self._labels: dict[str, str] = {}
        self._sources: dict[str, list[str]] = {}
        nodes = {node.name: node for node in graph.nodes}
        made = {tensor for item in quantized if item.tied for tensor in nodes[item.node].output}
        for item in quantized:
            if item.tied:
                node = nodes[item.node]
                read = [node.input[position] for position in item.activations]
                self._labels |= dict.fromkeys([*read, *node.output], item.tied)
                sources = self._sources.setdefault(item.tied, [])
                sources += [name for name in dict.fromkeys(read) if name not in (*sources, *made)]

    def sources(self, tensor: str) -> list[str]:
        """Returns the tensors whose values decide a tensor's scale; itself if it is not tied."""
        sources = self._sources.get(self._labels.get(tensor, ""), [])
        return sources if len(sources) > 1 else [tensor]

    def group(self, tensor: str) -> set[str]:
        """Returns all tensors that share their qparams with `tensor`, itself included."""
        label = self._labels.get(tensor)
        return {tensor} | {name for name, other in self._labels.items() if other == label}

    def shared_sources(self) -> list[str]:
        """Returns the tensors that have to share their scale with another source."""
        return [name for names in self._sources.values() if len(names) > 1 for name in names]

    def find_decided(self, tensor: str, decided: Mapping[str, QParams]) -> QParams | None:
        """Returns the qparams of a tensor that is tied to `tensor` and has some already."""
        label = self._labels.get(tensor)
        if label is None:
            return None
        return next((decided[name] for name in decided if self._labels.get(name) == label), None)

    def share(self, decided: dict[str, QParams], tensors: Sequence[str]) -> None:
        """Gives `tensors` the qparams of those that they are tied to, where these have some."""
        for tensor in tensors:
            qparams = self.find_decided(tensor, decided)
            if qparams is not None:
                decided[tensor] = qparams
