"""What quantizing one layer costs each output: the layer x head sensitivity matrix.

Each layer is quantized alone, its activations and its weights, with its output's mean corrected as
the streaming pass corrects it; everything else stays in float. Without that correction the sum of
the rows overstated the noise of the whole network 3.4 times on FastestDet; with it the sum was 1.1
to 1.2 times the noise on FastestDet and UltraFace (`benchmarks/sensitivity.py`), so that rows may
be added. Leaving one layer out of the quantized network instead is no guide: it also undoes the
corrections made for that layer further on (correlation with the rows 0.1 to 0.3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from artifacts.ownership import node_owners, read_heads
from compress.model_runner import Runner, open_runner
from compress.progress import Progress
from compress.quantize.decisions import Decisions
from compress.quantize.graph import Array, Graph
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
        heads: the outputs of each head.
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
    """Measures the matrix for a network whose integers are decided; see `measure_sensitivity`."""
    model = prepared.graph.copy().to_model()
    heads = read_heads(model) if heads is None else heads
    reference = open_runner(model)
    expected = [reference(samples[index]) for index in range(len(samples))]
    outputs = tuple(expected[0])
    layers = [item for item in prepared.quantized if not item.tied]
    noise = np.zeros((len(layers), len(outputs)))
    for row, item in enumerate(layers):
        if progress is not None:
            progress("sensitivity", row, len(layers))
        candidate = open_runner(_quantize_alone(prepared, decisions, item, samples))
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
        heads={head: tuple(names) for head, names in heads.items()},
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


def _quantize_alone(
    prepared: PreparedNetwork,
    decisions: Decisions,
    item: QuantizedNode,
    samples: Sequence[dict[str, Array]],
) -> onnx.ModelProto:
    """Returns the float network with one node quantized, the mean of its output corrected."""
    model = prepared.write_uncorrected(decisions, only=frozenset({item.node}))
    if item.weight is None:
        return model
    tensor = prepared.graph.node(item.node).output[0]
    plain = prepared.graph.copy().to_model()
    shift = _channel_means(plain, tensor, item, samples) - _channel_means(
        model, tensor, item, samples
    )
    _shift_output(model, item.node, shift)
    return model


def _channel_means(
    model: onnx.ModelProto, tensor: str, item: QuantizedNode, samples: Sequence[dict[str, Array]]
) -> Array:
    """Returns the mean of a tensor over samples, [1, …, channels, …, 1]."""
    run = open_runner(_prefix(model, tensor))
    means = []
    for index in range(len(samples)):
        value = run(samples[index])[tensor]
        axes = tuple(axis for axis in range(value.ndim) if axis != item.output_axis)
        means.append(value.mean(axis=axes, keepdims=True, dtype=np.float64))
    return np.asarray(np.mean(means, axis=0))


def _prefix(model: onnx.ModelProto, tensor: str) -> onnx.ModelProto:
    """Returns the nodes that `tensor` needs, as a model with that one output."""
    graph = Graph(model)
    needed, nodes = {tensor}, []
    for node in reversed(graph.nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    prefix = helper.make_model(
        helper.make_graph(
            nodes[::-1],
            "prefix",
            [item for item in model.graph.input if item.name in needed],
            [onnx.ValueInfoProto(name=tensor)],
            [item for item in model.graph.initializer if item.name in needed],
        ),
        opset_imports=graph.opset_imports,
        functions=graph.functions,
    )
    prefix.ir_version = model.ir_version
    return prefix


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
