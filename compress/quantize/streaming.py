"""The streaming pass: quantizes a graph layer by layer on the already quantized prefix.

The graph is walked once in topological order with two sets of activations, the float ones and
those of the quantized prefix, so that each layer sees the errors made before it and is corrected
towards the float output. Cost is linear in depth; a tensor is freed at its last use.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import onnx

from artifacts.samples import spread_indices
from compress.progress import Progress
from compress.quantize.activation_ranges import ActivationRanges
from compress.quantize.activation_store import ActivationStore
from compress.quantize.bias_shift import find_next_offset, shift_bias
from compress.quantize.decision_log import DecisionLog
from compress.quantize.decisions import Decisions, LayerResult
from compress.quantize.executor import Subgraph
from compress.quantize.graph import Array, read_tensors
from compress.quantize.layer_plan import LayerPlan
from compress.quantize.layer_weights import QuantizedWeight
from compress.quantize.memory_estimate import count_walked
from compress.quantize.placement import QuantizedNode
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.qdq_nodes import qdq_nodes
from compress.quantize.qparams import IntegerGrid, QParams, fake_quantize
from compress.quantize.repairs.input_correction import ChannelInputs, correct_for_inputs
from compress.quantize.rounding.round_layer import LayerInputs
from compress.quantize.settings import QuantizeSettings
from compress.quantize.side_by_side import map_ahead, threads_each
from compress.quantize.steps import Step, plan_steps
from compress.quantize.survey import not_finite
from compress.sqnr import SignalToNoise

Written = Mapping[str, Array]
"""What a step writes for one sample."""
Note = TypeVar("Note")

SHARED_LOSS = 1.05
"""A layer takes the integers of another that shares its weight if its error grows by no more."""


class StreamingPass:
    """One walk through a graph.

    Args:
        prepared: the network; its graph is not changed, its survey learns what it lacks.
        settings: observer, rounding and the rest.
        log: what an interrupted run had decided, and where this one keeps what it decides; without
            one, the layers may be weighed by themselves afterwards (`Decisions.alone`).
    """

    def __init__(
        self,
        prepared: PreparedNetwork,
        settings: QuantizeSettings,
        log: DecisionLog | None = None,
    ) -> None:
        self._prepared = prepared
        self._graph = prepared.graph
        self._settings = settings
        self._log = log or DecisionLog()
        self._weighs_layers = log is None
        self._quantized = {item.node: item for item in prepared.quantized}
        self._steps = plan_steps(prepared.graph, self._quantized)
        self._ranges = ActivationRanges(prepared, settings, log)
        self._decisions = Decisions(activations=self._ranges.decided)

    def run(
        self, samples: Sequence[dict[str, Array]], progress: Progress | None = None
    ) -> Decisions:
        """Walks the graph with the calibration samples.

        Args:
            samples: one dictionary of input arrays per sample. Ranges are chosen from all of them,
                unless the network's survey has them already; the walk takes as many as
                `count_walked` says, evenly spread.
            progress: is told ("calibrate", steps done, steps in all).
        """
        self._ranges.survey(samples, progress)
        count = count_walked(self._prepared, self._settings, len(samples))
        self._walked = spread_indices(len(samples), count)
        cap = self._settings.memory_cap_bytes // 2
        with (
            ActivationStore(len(self._walked), cap) as self._float,
            ActivationStore(len(self._walked), cap) as self._noisy,
        ):
            for place, index in enumerate(self._walked):
                for name, array in samples[index].items():
                    self._float.put(name, place, array)
            for done, step in enumerate(self._steps):
                if progress is not None:
                    progress("calibrate", done, len(self._steps))
                if step.moved:
                    self._run_movement(step)
                elif step.quantized is None:
                    self._run_float(step)
                elif step.quantized.weight is None:
                    self._run_weightless(step)
                else:
                    self._run_layer(step, step.quantized)
            self._measure_outputs()
        if progress is not None:
            progress("calibrate", len(self._steps), len(self._steps))
        return self._decisions

    def _free(self, step: Step, sample: int) -> None:
        """Forgets what no later step reads of a sample."""
        for name in step.freed:
            self._float.free(name, sample)
            self._noisy.free(name, sample)

    def _noisy_value(self, tensor: str, sample: int) -> Array:
        """Returns the quantized prefix's value, the float one where nothing before is quantized."""
        store = self._noisy if tensor in self._noisy else self._float
        return store.get(tensor, sample)

    def _float_feeds(self, step: Step, sample: int) -> dict[str, Array]:
        return {name: self._float.get(name, sample) for name in step.inputs}

    def _open(self, step: Step, weights: dict[str, Array]) -> Subgraph:
        example = self._float_feeds(step, 0)
        return self._open_nodes(step.nodes, weights, example, step.outputs)

    def _open_nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        weights: Mapping[str, Array],
        example: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        is_exact: bool = False,
    ) -> Subgraph:
        threads = threads_each(self._float.samples)
        return Subgraph(
            self._graph, nodes, weights, example, outputs, is_exact=is_exact, threads=threads
        )

    def _walk(
        self, step: Step, compute: Callable[[int], tuple[Written, Written, Note]]
    ) -> list[Note]:
        """Keeps what a step writes, and frees what nobody reads later.

        Args:
            step: the one that is computed.
            compute: returns what it writes for a sample in the float network and behind the
                quantized prefix, and a note.

        Returns:
            the notes, one per sample.
        """
        notes = []
        for sample, computed in enumerate(map_ahead(compute, range(self._float.samples))):
            expected, got, note = computed
            for store, values in ((self._float, expected), (self._noisy, got)):
                for name, value in values.items():
                    store.put(name, sample, value)
            self._free(step, sample)
            notes.append(note)
        return notes

    def _run_float(self, step: Step) -> None:
        plain = self._open(step, self._graph.weights)
        overridden = {
            name for node in step.nodes for name in node.input if name in self._decisions.overrides
        }
        noisy = (
            self._open(step, self._graph.weights | self._decisions.overrides)
            if overridden
            else plain
        )
        is_clean = not overridden and not any(name in self._noisy for name in step.inputs)

        def compute(sample: int) -> tuple[Written, Written, None]:
            expected = plain.run(self._float_feeds(step, sample))
            if is_clean:
                return expected, {}, None
            feeds = {name: self._noisy_value(name, sample) for name in step.inputs}
            return expected, noisy.run(feeds), None

        self._walk(step, compute)

    def _run_movement(self, step: Step) -> None:
        """Quantizes what comes in; the rest of the way its values only change places."""
        compute = self._computes_both(step, self._quantizers(step))
        self._ranges.share(step.moved)
        self._walk(step, lambda sample: (*compute(sample), None))

    def _run_weightless(self, step: Step) -> None:
        compute_both = self._computes_both(step, self._quantizers(step))

        def compute(sample: int) -> tuple[Written, Written, SignalToNoise]:
            expected, got = compute_both(sample)
            meter = SignalToNoise()
            for name in step.outputs:
                meter.update(expected[name], got[name])
            return expected, got, meter

        self._note(step.nodes[0], SignalToNoise.sum(self._walk(step, compute)))

    def _computes_both(
        self, step: Step, quantizers: dict[str, Subgraph]
    ) -> Callable[[int], tuple[Written, Written]]:
        """Returns what computes a step without weights on float and on quantized inputs."""
        operator = self._open(step, self._graph.weights)
        return lambda sample: (
            operator.run(self._float_feeds(step, sample)),
            operator.run(self._quantized_feeds(step, quantizers, sample)),
        )

    def _run_layer(self, step: Step, choice: QuantizedNode) -> None:
        node = step.nodes[0]
        quantizers = self._quantizers(step)
        plain = self._open(step, self._graph.weights)
        known = self._log.find_weight(node.name)
        weight, how = known or self._choose_weight(step, choice, quantizers, plain)
        if known is None:
            self._log.keep_weight(node.name, weight, how)
        self._decisions.weights[node.name] = weight
        noisy = self._open(step, self._graph.weights | {node.input[1]: weight.dequantize()})
        result = node.output[0]

        def compute(sample: int) -> tuple[Written, Written, Array]:
            expected = plain.run(self._float_feeds(step, sample))
            if not np.isfinite(expected[result]).all():
                what = f"'{result}', the output of node '{node.name}',"
                raise not_finite(what, self._walked[sample])
            got = noisy.run(self._quantized_feeds(step, quantizers, sample))
            difference = expected[result] - got[result]
            axes = tuple(axis for axis in range(difference.ndim) if axis != choice.output_axis)
            return expected, got, np.asarray(np.mean(difference, axis=axes, dtype=np.float64))

        shift = np.asarray(np.mean(self._walk(step, compute), axis=0))
        offset = np.zeros(1, np.float32)
        if self._settings.bias_correction and shift_bias(self._graph, self._decisions, node, shift):
            shape = [1] * self._float.get(result, 0).ndim
            shape[choice.output_axis] = -1
            offset = shift.astype(np.float32).reshape(shape)

        def compare(sample: int) -> tuple[Array, SignalToNoise]:
            got = self._noisy.get(result, sample) + offset
            meter = SignalToNoise()
            meter.update(self._float.get(result, sample), got)
            return got, meter

        meters = []
        for sample, (got, meter) in enumerate(map_ahead(compare, range(self._float.samples))):
            self._noisy.put(result, sample, got)
            meters.append(meter)
        self._note(node, SignalToNoise.sum(meters), how, weight.bits)

    def _note(
        self,
        node: onnx.NodeProto,
        meter: SignalToNoise,
        rounding: str = "",
        bits: int | None = None,
    ) -> None:
        self._decisions.layers.append(
            LayerResult(
                node=node.name,
                op_type=node.op_type,
                sqnr_db=meter.sqnr_db,
                rounding=rounding,
                weight_bits=bits,
            )
        )

    def _choose_weight(
        self,
        step: Step,
        choice: QuantizedNode,
        quantizers: dict[str, Subgraph],
        plain: Subgraph,
    ) -> tuple[QuantizedWeight, str]:
        """Returns the layer's integers, and how they were found.

        Those of a layer before it that reads the same weight are taken where they do as well, so
        that the file holds them once.
        """
        weight, how = self._round(step, choice, quantizers, plain)
        name = step.nodes[0].input[1]
        for reader in self._graph.consumers(name):
            shared = self._decisions.weights.get(reader.name)
            if shared is None or reader.input[1] != name or shared.axis != weight.axis:
                continue
            if shared.scales.shape != weight.scales.shape or shared.bits != weight.bits:
                continue
            own, others = (
                self._measure_weight(step, choice, quantizers, plain, item)
                for item in (weight, shared)
            )
            if others <= own * SHARED_LOSS:
                return shared, f"as in {reader.name}"
        return weight, how

    def _measure_weight(
        self,
        step: Step,
        choice: QuantizedNode,
        quantizers: dict[str, Subgraph],
        plain: Subgraph,
        weight: QuantizedWeight,
    ) -> float:
        """Returns the squared error of a layer's output with such integers, its means corrected."""
        node = step.nodes[0]
        noisy = self._open(step, self._graph.weights | {node.input[1]: weight.dequantize()})
        result = node.output[0]

        def compare(sample: int) -> Array:
            wanted = plain.run(self._float_feeds(step, sample))[result]
            got = noisy.run(self._quantized_feeds(step, quantizers, sample))[result]
            difference = np.moveaxis(wanted - got, choice.output_axis, 0).astype(np.float64)
            flat = difference.reshape(len(difference), -1)
            return np.stack([flat.mean(axis=1), np.square(flat).mean(axis=1)])

        means, squares = np.mean(list(map_ahead(compare, range(self._float.samples))), axis=0)
        is_centered = self._settings.bias_correction
        return float(np.sum(squares - np.square(means) if is_centered else squares))

    def _round(
        self,
        step: Step,
        choice: QuantizedNode,
        quantizers: dict[str, Subgraph],
        plain: Subgraph,
    ) -> tuple[QuantizedWeight, str]:
        """Returns the layer's integers, and how they were found."""
        node = step.nodes[0]
        weight = self._graph.weights[node.input[1]]
        shape = plain.run(self._float_feeds(step, 0))[node.output[0]].shape
        has_offset = node.op_type != "MatMul" or find_next_offset(
            self._graph, node, weight.shape[1]
        )

        def read(sample: int) -> tuple[Array, Array]:
            tensor = node.input[0]
            return (
                np.asarray(self._float.get(tensor, sample)),
                self._quantized_feeds(step, quantizers, sample)[tensor],
            )

        inputs = LayerInputs(
            samples=self._float.samples,
            read=read,
            output_shape=shape,
            is_centered=self._settings.bias_correction and bool(has_offset),
        )
        plan = LayerPlan.of(self._graph, choice, self._settings)
        if plan.rounding.needs_inputs or not self._settings.input_correction:
            return plan.round(weight, inputs)
        correct = partial(self._correct, choice, plan.grid, is_centered=inputs.is_centered)
        corrected = correct(self._noisy_value)
        if corrected is None:
            return plan.round(weight, inputs)
        if self._weighs_layers:
            alone = correct(self._float.get)
            alone = weight if alone is None else alone
            self._decisions.alone[node.name], _ = plan.round(alone, inputs)
        integers, how = plan.round(corrected, inputs)
        return integers, f"{how}, inputs corrected"

    def _correct(
        self,
        choice: QuantizedNode,
        grid: IntegerGrid,
        value: Callable[[str, int], Array],
        *,
        is_centered: bool,
    ) -> Array | None:
        """Returns a layer's weight, made up for what `value` and rounding do to its input."""
        node = self._graph.node(choice.node)
        tensor = node.input[0]
        is_rounded = 0 in choice.activations
        inputs = ChannelInputs(
            samples=self._float.samples,
            read=lambda sample: (self._float.get(tensor, sample), value(tensor, sample)),
            qparams=self._decisions.activations[tensor] if is_rounded else None,
            is_centered=is_centered,
        )
        weight = self._graph.weights[node.input[1]]
        return correct_for_inputs(node, weight, choice.weight_axis, grid, inputs)

    def _quantizers(self, step: Step) -> dict[str, Subgraph]:
        return {tensor: self._quantizer(node, tensor) for tensor, node in step.entering.items()}

    def _quantizer(self, node: onnx.NodeProto, tensor: str) -> Subgraph:
        """Returns a tensor's Q/DQ pair ready to run; `node` is the one that reads it."""
        qparams = self._ranges.decide(tensor, partial(self._output_error, node, tensor))
        nodes, constants = qdq_nodes(tensor, f"{tensor}_scale", f"{tensor}_zero_point", qparams)
        example = {tensor: self._noisy_value(tensor, 0)}
        outputs = [nodes[1].output[0]]
        return self._open_nodes(nodes, constants, example, outputs, is_exact=True)

    def _output_error(self, node: onnx.NodeProto, tensor: str, qparams: QParams) -> float:
        """Returns the squared error of a node's output when one input is rounded, means corrected.

        The other inputs have the values of the quantized prefix; the reference is the float output.
        """
        names = [name for name in read_tensors(node) if name not in self._graph.weights]
        feeds = {name: self._float.get(name, 0) for name in names}
        layer = Subgraph(self._graph, [node], self._graph.weights, feeds, [node.output[0]])
        error = 0.0
        for sample in range(self._float.samples):
            wanted = layer.run({name: self._float.get(name, sample) for name in names})
            noisy = {name: self._noisy_value(name, sample) for name in names}
            noisy[tensor] = fake_quantize(noisy[tensor], qparams)
            difference = layer.run(noisy)[node.output[0]] - wanted[node.output[0]]
            if difference.ndim == 4:
                difference -= difference.mean(axis=(0, 2, 3), keepdims=True)
            error += float(np.sum(np.square(difference, dtype=np.float64)))
        return error

    def _quantized_feeds(
        self, step: Step, quantizers: dict[str, Subgraph], sample: int
    ) -> dict[str, Array]:
        feeds = {}
        for name in step.inputs:
            value = self._noisy_value(name, sample)
            if name in quantizers:
                value = next(iter(quantizers[name].run({name: value}).values()))
            feeds[name] = value
        return feeds

    def _measure_outputs(self) -> None:
        for output, tensors in self._graph.results.items():
            found = [self._measure(name) for name in tensors if name not in self._graph.weights]
            if found:
                self._decisions.outputs_db[output] = min(found)

    def _measure(self, tensor: str) -> float:
        meter = SignalToNoise()
        for sample in range(self._float.samples):
            meter.update(self._float.get(tensor, sample), self._noisy_value(tensor, sample))
        return meter.sqnr_db
