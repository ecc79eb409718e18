"""Looks at each quantized layer: its inputs, its weight, its output channels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from artifacts.decided_outputs import pin_choices, read_choices
from compress.diagnose.report import ActivationFinding, LayerDiagnosis, WeightFinding
from compress.diagnose.tensor_meters import ActivationMeter, ChannelMeter
from compress.model_runner import Runner, open_runner
from compress.progress import Progress
from compress.quantize.decisions import Decisions
from compress.quantize.graph import Array
from compress.quantize.placement import QuantizedNode
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.sensitivity import SensitivityMatrix
from compress.sqnr import to_db

BINS = 32


@dataclass(frozen=True)
class _Tensors:
    """The tensors of interest: activation inputs by node, and one output each."""

    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, str]

    @property
    def names(self) -> list[str]:
        inputs = (tensor for tensors in self.inputs.values() for tensor in tensors)
        return sorted({*inputs, *self.outputs.values()})


def inspect_layers(
    prepared: PreparedNetwork,
    decisions: Decisions,
    matrix: SensitivityMatrix,
    samples: Sequence[dict[str, Array]],
    progress: Progress | None = None,
) -> tuple[LayerDiagnosis, ...]:
    """Runs the float and the quantized network side by side and looks at each layer.

    Memory holds all activations of one sample, twice.

    Args:
        prepared: the network.
        decisions: qparams and integers of every layer.
        matrix: what each layer costs each head.
        samples: the samples to look at.
        progress: is told ("inspect layers", samples done, samples in all).
    """
    layers = [item for item in prepared.quantized if item.node in matrix.layers]
    tensors = _tensors(prepared, layers)
    names = tensors.names
    choices = read_choices(prepared.graph.nodes, prepared.graph.outputs)
    reference = _open_with(prepared.graph.copy().to_model(), [*names, *choices])
    candidate = _open_with(pin_choices(prepared.write_model(decisions), choices), names)
    inputs = {
        tensor: ActivationMeter(tensor, decisions.activations[tensor])
        for read in tensors.inputs.values()
        for tensor in read
    }
    outputs = {item.node: ChannelMeter(item.output_axis) for item in layers}
    for index in range(len(samples)):
        if progress is not None:
            progress("inspect layers", index, len(samples))
        feeds = samples[index]
        expected = reference(feeds) | dict(feeds)
        got = candidate(expected)
        for tensor, activation in inputs.items():
            activation.update(expected[tensor])
        for node, output in outputs.items():
            name = tensors.outputs[node]
            output.update(expected[name], got[name])
    if progress is not None:
        progress("inspect layers", len(samples), len(samples))
    findings = {tensor: meter.finding() for tensor, meter in inputs.items()}
    return tuple(
        _layer(prepared, decisions, matrix, item, outputs[item.node], read)
        for item in layers
        for read in [tuple(findings[tensor] for tensor in tensors.inputs[item.node])]
    )


def _tensors(prepared: PreparedNetwork, layers: Sequence[QuantizedNode]) -> _Tensors:
    nodes = {item.node: prepared.graph.node(item.node) for item in layers}
    return _Tensors(
        inputs={
            item.node: tuple(
                dict.fromkeys(nodes[item.node].input[position] for position in item.activations)
            )
            for item in layers
        },
        outputs={name: node.output[0] for name, node in nodes.items()},
    )


def _open_with(model: onnx.ModelProto, names: Sequence[str]) -> Runner:
    """Opens a model that also returns the tensors `names`, as far as nodes compute them."""
    known = {item.name for item in model.graph.output}
    computed = {name for node in model.graph.node for name in node.output}
    wanted = [name for name in names if name in computed - known]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    return open_runner(model)


def _layer(
    prepared: PreparedNetwork,
    decisions: Decisions,
    matrix: SensitivityMatrix,
    item: QuantizedNode,
    output: ChannelMeter,
    activations: tuple[ActivationFinding, ...],
) -> LayerDiagnosis:
    row = matrix.layers.index(item.node)
    return LayerDiagnosis(
        node=item.node,
        op_type=prepared.graph.node(item.node).op_type,
        owner=matrix.owners.get(item.node, "-"),
        sqnr_db=output.sqnr_db,
        share=float(matrix.shares()[row]),
        noise=dict(zip(matrix.heads, map(float, matrix.head_noise()[row]), strict=True)),
        channel_db=output.channel_db,
        activations=activations,
        weight=None if item.weight is None else _weight(prepared, decisions, item, item.weight),
    )


def _weight(
    prepared: PreparedNetwork, decisions: Decisions, item: QuantizedNode, position: int
) -> WeightFinding:
    node = prepared.graph.node(item.node)
    weight = decisions.weights[item.node]
    plain = prepared.graph.weights[node.input[position]].astype(np.float64)
    rounded = weight.dequantize()
    axes = tuple(axis for axis in range(plain.ndim) if axis != item.weight_axis)
    magnitudes = np.abs(plain).max(axis=axes)
    alive = magnitudes[magnitudes > 0]
    highest = (1 << (weight.bits - 1)) - 1
    counts, _ = np.histogram(
        weight.integers, bins=min(BINS, 2 * highest + 1), range=(-highest - 0.5, highest + 0.5)
    )
    error = np.sum(np.square(rounded - plain), keepdims=True)
    return WeightFinding(
        sqnr_db=float(to_db(np.sum(np.square(plain), keepdims=True), error).reshape(-1)[0]),
        histogram=tuple(int(count) for count in counts),
        lowest=-highest,
        highest=highest,
        dead_channels=tuple(int(index) for index in np.flatnonzero(magnitudes == 0)),
        range_ratio=float(alive.max() / np.median(alive)) if alive.size else 1.0,
    )
