"""What quantizing one layer costs each output: the layer x head sensitivity matrix.

Each layer is quantized alone, its activations and its weights, with its output's mean corrected as
the streaming pass corrects it; everything else stays in float. With that correction rows add up to
about the noise of the whole network. Leaving one layer out of the quantized network instead is no
guide: it also undoes the corrections made for that layer further on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from artifacts.output_parts import OutputPart, part_heads, with_parts
from artifacts.ownership import node_owners, read_heads
from artifacts.samples import pick_evenly
from compress.progress import Progress
from compress.quantize.decisions import Decisions
from compress.quantize.executor import Subgraph
from compress.quantize.graph import Array, Graph
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.lone_layer import LoneLayer

Samples = Sequence[dict[str, Array]]

MATRIX_SAMPLES = 4
"""So many samples, at least, measure a matrix."""
MATRIX_VALUES = 4_000_000
"""Input values that are enough for a matrix: large pictures have more places to average over."""
BRANCHES = 8
"""Layers that share one network."""
BRANCH_BYTES = 1 << 30
"""What their weights may take, since a runtime may keep a copy for each."""


@dataclass(frozen=True, kw_only=True)
class SensitivityMatrix:
    """What each layer costs each output when it alone is quantized.

    Attributes:
        layers: names of the quantized nodes that compute, in topological order.
        outputs: names of the network's outputs, and of the parts of those that join unlike tensors.
        noise: [layers, outputs] float64, squared error over the output's squared values.
        owners: the head that each layer belongs to, or "trunk".
        heads: the outputs of each head; the parts count as heads too.
        parts: the parts themselves.
    """

    layers: tuple[str, ...]
    outputs: tuple[str, ...]
    noise: NDArray[np.float64]
    owners: dict[str, str]
    heads: dict[str, tuple[str, ...]]
    parts: tuple[OutputPart, ...] = ()

    def head_noise(self) -> NDArray[np.float64]:
        """Returns [layers, heads], the mean over the outputs of each head."""
        columns = [
            self.noise[:, [self.outputs.index(output) for output in outputs]].mean(axis=1)
            for outputs in self.heads.values()
        ]
        return np.stack(columns, axis=1)

    def shares(self) -> NDArray[np.float64]:
        """Returns [layers], each layer's share of the noise, heads weighing alike; sums to 1."""
        noise = self.head_noise()
        total = noise.sum(axis=0)
        return np.asarray(np.mean(noise / np.where(total > 0, total, 1.0), axis=1))


def pick_measured(samples: Samples) -> Samples:
    """Returns as many of the samples, evenly spread, as it takes to measure a matrix."""
    values = sum(array.size for array in samples[0].values())
    count = min(len(samples), max(MATRIX_SAMPLES, MATRIX_VALUES // values))
    return pick_evenly(samples, count)


def take_worse(one: SensitivityMatrix, other: SensitivityMatrix) -> SensitivityMatrix:
    """Returns a matrix of one network with the larger noise of two, entry by entry."""
    return replace(one, noise=np.maximum(one.noise, other.noise))


def measure_layers(
    prepared: PreparedNetwork,
    decisions: Decisions,
    sets: Sequence[Samples],
    heads: Mapping[str, Sequence[str]] | None = None,
    progress: Progress | None = None,
) -> list[SensitivityMatrix]:
    """Measures a matrix on each set of samples, for a network whose integers are decided.

    An output that joins unlike tensors counts as a whole, and so does each of them: the noise of a
    detector's scores cannot be seen beside its boxes.

    Args:
        prepared: the float network.
        decisions: how each of its layers is quantized.
        sets: each of samples to measure the errors on.
        heads: the outputs of each head; None for what the model's metadata says.
        progress: is told (what, done, total).
    """
    graph = prepared.graph
    model = graph.copy().to_model()
    heads = read_heads(model) if heads is None else heads
    parts = graph.find_parts()
    layers = [
        LoneLayer.of(prepared, decisions, item) for item in prepared.quantized if not item.tied
    ]
    shifts = _mean_shifts(graph, layers, sets)
    outputs = (*graph.outputs, *(part.name for part in parts))
    noise = [np.zeros((len(layers), len(outputs))) for _ in sets]
    most = _count_branches(graph)
    for first in range(0, len(layers), most):
        if progress is not None:
            progress("sensitivity", first, len(layers))
        group = layers[first : first + most]
        branches = _Branches(graph, group, parts, {**sets[0][0], **shifts[0]})
        for matrix, samples, shift in zip(noise, sets, shifts, strict=True):
            matrix[first : first + most] = branches.measure_noise(samples, shift)
    if progress is not None:
        progress("sensitivity", len(layers), len(layers))
    owners = node_owners(model, heads)
    names = tuple(layer.name for layer in layers)
    return [
        SensitivityMatrix(
            layers=names,
            outputs=outputs,
            noise=item,
            owners={name: owners[name] for name in names if name in owners},
            heads=list_measured(graph, heads, parts),
            parts=parts,
        )
        for item in noise
    ]


def list_measured(
    graph: Graph, heads: Mapping[str, Sequence[str]], parts: Sequence[OutputPart]
) -> dict[str, tuple[str, ...]]:
    """Returns the tensors that heads are measured at; the parts of their outputs count as heads."""
    wholes = {head: _measured(graph, names) for head, names in heads.items()}
    return wholes | part_heads(parts)


def _measured(graph: Graph, outputs: Sequence[str]) -> tuple[str, ...]:
    """Returns the tensors that outputs are measured at."""
    return tuple(dict.fromkeys(tensor for name in outputs for tensor in graph.results[name]))


def _count_branches(graph: Graph) -> int:
    weight_bytes = sum(value.nbytes for value in graph.weights.values())
    return max(1, min(BRANCHES, BRANCH_BYTES // max(weight_bytes, 1)))


def _mean_shifts(
    graph: Graph, layers: Sequence[LoneLayer], sets: Sequence[Samples]
) -> list[dict[str, Array]]:
    """Returns what quantizing each layer takes from its result's mean, by set and input name."""
    moving = [layer for layer in layers if layer.mean_axes]
    nodes, weights = list(graph.nodes), dict(graph.weights)
    for layer in moving:
        nodes += layer.write_shift(graph.opset)
        weights |= layer.constants
    network = Subgraph(graph, nodes, weights, sets[0][0], [layer.shift for layer in moving])
    return [_mean_outputs(network, samples) for samples in sets]


def _mean_outputs(network: Subgraph, samples: Samples) -> dict[str, Array]:
    sums: dict[str, Array] = {}
    for index in range(len(samples)):
        for name, value in network.run(samples[index]).items():
            sums[name] = sums.get(name, 0.0) + value.astype(np.float64)
    return {name: (value / len(samples)).astype(np.float32) for name, value in sums.items()}


class _Branches:
    """The float network with a branch for each of some layers, in which that layer is quantized.

    Args:
        graph: the float network.
        layers: the layers.
        parts: of the outputs, whose noise is wanted beside that of these.
        feeds: an example of all inputs, shifts included.
    """

    def __init__(
        self,
        graph: Graph,
        layers: Sequence[LoneLayer],
        parts: Sequence[OutputPart],
        feeds: Mapping[str, Array],
    ) -> None:
        self._outputs, self._parts = graph.outputs, parts
        self._reached: list[dict[str, str]] = []
        nodes, weights = list(graph.nodes), dict(graph.weights)
        for layer in layers:
            branch, owned = layer.write_branch(graph)
            nodes += branch
            weights |= layer.constants
            self._reached.append({name: layer.own(name) for name in graph.outputs if name in owned})
        inputs = [*graph.inputs, *(layer.shift for layer in layers if layer.mean_axes)]
        results = {
            name: None for reached in self._reached for pair in reached.items() for name in pair
        }
        self._network = Subgraph(
            graph, nodes, weights, {name: feeds[name] for name in inputs}, list(results)
        )

    def measure_noise(self, samples: Samples, shifts: Mapping[str, Array]) -> NDArray[np.float64]:
        """Returns [layers, outputs and parts], the squared error over the squared values."""
        columns = [*self._outputs, *(part.name for part in self._parts)]
        signal = np.zeros(len(columns))
        error = np.zeros((len(self._reached), len(columns)))
        for index in range(len(samples)):
            values = self._network.run({**samples[index], **shifts})
            whole = {name: values[name] for name in self._outputs if name in values}
            expected = with_parts(whole, self._parts)
            for name, value in expected.items():
                signal[columns.index(name)] += _square_sum(value)
            for row, reached in enumerate(self._reached):
                own = {name: values[twin] for name, twin in reached.items()}
                for name, value in with_parts(own, self._parts).items():
                    error[row, columns.index(name)] += _square_sum(value - expected[name])
        return np.asarray(error / np.where(signal > 0, signal, 1.0))


def _square_sum(values: Array) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))
