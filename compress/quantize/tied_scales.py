"""Scales that several tensors share, because integers move between them unchanged.

The streaming pass chooses the scale of a tensor when it comes by. Tied tensors need theirs before
the last of them is computed, so where a tie has several sources they are looked at in the float
network first.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from compress.quantize.executor import Subgraph
from compress.quantize.graph import Array, Graph
from compress.quantize.placement import QuantizedNode
from compress.quantize.qparams import QParams

VALUES_IN_ALL = 1 << 24
FEWEST_VALUES = 1 << 8


class TiedScales:
    """Which tensors share their qparams, and the values to choose them by.

    Args:
        graph: the simplified float graph.
        quantized: the nodes to quantize; those with a `tied` label tie their tensors.
    """

    def __init__(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> None:
        self._graph = graph
        self._labels: dict[str, str] = {}
        self._sources: dict[str, list[str]] = {}
        self._values: dict[str, list[Array]] = {}
        nodes = {node.name: node for node in graph.nodes}
        made = {tensor for item in quantized if item.tied for tensor in nodes[item.node].output}
        for item in quantized:
            if item.tied:
                node = nodes[item.node]
                read = [node.input[position] for position in item.activations]
                self._labels |= dict.fromkeys([*read, *node.output], item.tied)
                sources = self._sources.setdefault(item.tied, [])
                sources += [name for name in dict.fromkeys(read) if name not in (*sources, *made)]

    def observe(self, samples: Sequence[Mapping[str, Array]]) -> None:
        """Takes values of every tie with several sources from the float network.

        At most VALUES_IN_ALL values are kept (or FEWEST_VALUES of each tensor and sample), the
        extremes of each tensor among them, and as many of each source.
        """
        tensors = [name for names in self._sources.values() if len(names) > 1 for name in names]
        if not tensors:
            return
        network = Subgraph(self._graph, self._graph.nodes, self._graph.weights, samples[0], tensors)
        each = max(FEWEST_VALUES, VALUES_IN_ALL // (len(tensors) * len(samples)))
        for sample in samples:
            for name, value in network.run(sample).items():
                self._values.setdefault(name, []).append(_thin(value, each))

    def observed(self) -> dict[str, list[Array]]:
        """Returns what was seen of each source of a tie with several, one array per sample."""
        return self._values

    def values(self, tensor: str) -> list[Array] | None:
        """Returns the values that decide a tensor's scale, one array per sample.

        None if they are the tensor's own.
        """
        sources = self._sources.get(self._labels.get(tensor, ""), [])
        if len(sources) < 2:
            return None
        parts = [self._values[name] for name in sources]
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

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


def _thin(array: Array, count: int) -> Array:
    flat = array.reshape(-1)
    step = -(-flat.size // count) | 1
    return np.concatenate([flat[::step], [flat.min(), flat.max()]], dtype=flat.dtype)
