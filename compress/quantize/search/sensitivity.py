"""What quantizing one layer costs each output: the layer x head sensitivity matrix.

Each layer is quantized alone, its activations and its weights, with its output's mean corrected as
the streaming pass corrects it; everything else stays in float. With that correction rows add up to
about the noise of the whole network. Leaving one layer out of the quantized network instead is no
guide: it also undoes the corrections made for that layer further on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from artifacts.ownership import node_owners, read_heads, read_parts
from compress.model_runner import Runner, open_runner
from compress.progress import Progress
from compress.quantize.decisions import Decisions
from compress.quantize.executor import Subgraph
from compress.quantize.graph import Array, Graph, read_tensors
from compress.quantize.placement import QuantizedNode
from compress.quantize.prepared import PreparedNetwork, prepare_network
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

SHIFT = "framefit_mean_shift"


@dataclass(frozen=True, kw_only=True)
class SensitivityMatrix:
    """What each layer costs each output when it alone is quantized.

    Attributes:
        layers: names of the quantized nodes that compute, in topological order.
        outputs: names of the network's outputs.
        noise: [layers, outputs] float64, squared error over the output's squared values.
        owners: the head that each layer belongs to, or "trunk".
        heads: the outputs of each head, and the parts of an output that joins unlike tensors.
    """

    layers: tuple[str, ...]
    outputs: tuple[str, ...]
    noise: NDArray[np.float64]
    owners: dict[str, str]
    heads: dict[str, tuple[str, ...]]

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


def take_worse(one: SensitivityMatrix, other: SensitivityMatrix) -> SensitivityMatrix:
    """Returns a matrix of one network with the larger noise of two, entry by entry."""
    return replace(one, noise=np.maximum(one.noise, other.noise))


def measure_sensitivity(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    heads: Mapping[str, Sequence[str]] | None = None,
    progress: Progress | None = None,
) -> SensitivityMatrix:
    """Quantizes a float model and measures each layer's share of the error.

    Args:
        model: as for `quantize_model`; it is not changed.
        samples: calibration samples; they choose the ranges and measure the errors.
        settings: how to quantize.
        heads: the outputs of each head; None for what the model's metadata says.
        progress: is told (what, done, total).
    """
    prepared = prepare_network(model, samples, settings)
    decisions = StreamingPass(prepared, settings).run(samples, progress)
    return measure_layers(prepared, decisions, samples, heads, progress)


def measure_layers(
    prepared: PreparedNetwork,
    decisions: Decisions,
    samples: Sequence[dict[str, Array]],
    heads: Mapping[str, Sequence[str]] | None = None,
    progress: Progress | None = None,
) -> SensitivityMatrix:
    """Measures the matrix for a network whose integers are decided; see `measure_sensitivity`.

    An output that joins unlike tensors counts as a whole, and so does each of them: the noise of a
    detector's scores cannot be seen beside its boxes.
    """
    model = prepared.graph.copy().to_model()
    heads = read_heads(model) if heads is None else heads
    parts = read_parts(model)
    reference = open_runner(model, tuple(parts))
    expected = [reference(samples[index]) for index in range(len(samples))]
    outputs = tuple(expected[0])
    layers = [item for item in prepared.quantized if not item.tied]
    noise = np.zeros((len(layers), len(outputs)))
    shifts = _mean_shifts(prepared, decisions, layers, samples)
    for row, (item, shift) in enumerate(zip(layers, shifts, strict=True)):
        if progress is not None:
            progress("sensitivity", row, len(layers))
        candidate = open_runner(_quantize_alone(prepared, decisions, item, shift), tuple(parts))
        noise[row] = _relative_noise(candidate, expected, samples)
    if progress is not None:
        progress("sensitivity", len(layers), len(layers))
    owners = node_owners(model, heads)
    names = tuple(item.node for item in layers)
    return SensitivityMatrix(
        layers=names,
        outputs=outputs,
        noise=noise,
        owners={name: owners[name] for name in names if name in owners},
        heads={head: tuple(names) for head, names in heads.items()} | parts,
    )


def _relative_noise(
    candidate: Runner, expected: Sequence[Mapping[str, Array]], samples: Sequence[dict[str, Array]]
) -> NDArray[np.float64]:
    signal = np.zeros(len(expected[0]))
    error = np.zeros(len(expected[0]))
    for index, wanted in enumerate(expected):
        got = candidate(samples[index])
        for column, (name, value) in enumerate(wanted.items()):
            signal[column] += np.sum(np.square(value, dtype=np.float64))
            error[column] += np.sum(np.square(got[name] - value, dtype=np.float64))
    return np.asarray(error / np.where(signal > 0, signal, 1.0))


def _mean_shifts(
    prepared: PreparedNetwork,
    decisions: Decisions,
    layers: Sequence[QuantizedNode],
    samples: Sequence[dict[str, Array]],
) -> list[Array | None]:
    """Returns what quantizing each layer takes from its output's mean, [1, …, channels, …, 1].

    None for nodes without a weight. One pass of the float network gives all layers their inputs.
    """
    graph = prepared.graph
    weighted = [item for item in layers if item.weight is not None]
    tensors = dict.fromkeys(
        name
        for item in weighted
        for name in (*read_tensors(graph.node(item.node)), graph.node(item.node).output[0])
        if name not in graph.weights and name not in graph.inputs
    )
    network = Subgraph(graph, graph.nodes, graph.weights, samples[0], list(tensors))
    alone: dict[str, Subgraph] = {}
    sums: dict[str, Array] = {}
    for index in range(len(samples)):
        values = samples[index] | network.run(samples[index])
        for item in weighted:
            if item.node not in alone:
                alone[item.node] = _open_alone(prepared, decisions, item, values)
            result = graph.node(item.node).output[0]
            difference = values[result] - alone[item.node].run(values)[result]
            axes = tuple(axis for axis in range(difference.ndim) if axis != item.output_axis)
            mean = difference.mean(axis=axes, keepdims=True, dtype=np.float64)
            sums[item.node] = sums.get(item.node, 0.0) + mean
    return [sums[item.node] / len(samples) if item.node in sums else None for item in layers]


def _open_alone(
    prepared: PreparedNetwork,
    decisions: Decisions,
    item: QuantizedNode,
    values: Mapping[str, Array],
) -> Subgraph:
    """Returns one quantized layer, from its float inputs to its output."""
    graph = Graph(prepared.write_uncorrected(decisions, only=frozenset({item.node})))
    source = prepared.graph.node(item.node)
    given = {name: values[name] for name in read_tensors(source) if name in values}
    needed, nodes = {source.output[0]}, []
    for node in reversed(graph.nodes):
        if needed.intersection(node.output):
            needed |= set(read_tensors(node)) - given.keys()
            nodes.append(node)
    return Subgraph(graph, nodes[::-1], graph.weights, given, [source.output[0]], is_exact=True)


def _quantize_alone(
    prepared: PreparedNetwork, decisions: Decisions, item: QuantizedNode, shift: Array | None
) -> onnx.ModelProto:
    """Returns the float network with one node quantized, the mean of its output corrected."""
    model = prepared.write_uncorrected(decisions, only=frozenset({item.node}))
    if shift is not None:
        _shift_output(model, item.node, shift)
    return model


def _shift_output(model: onnx.ModelProto, name: str, shift: Array) -> None:
    """Adds `shift` to what the node called `name` computes."""
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        if node.name == name:
            result = node.output[0]
            node.output[0] = f"{result}_{SHIFT}_before"
            addition = helper.make_node("Add", [node.output[0], SHIFT], [result], SHIFT)
            nodes.append(addition)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    model.graph.initializer.append(numpy_helper.from_array(shift.astype(np.float32), SHIFT))
