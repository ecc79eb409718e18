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
from numpy.typing import NDArray

from artifacts.decided_outputs import read_choices
from artifacts.graph_reading import read_tensors
from artifacts.output_parts import OutputPart
from artifacts.samples import spread_indices
from compress.constant_outputs import describe_constant
from compress.progress import Progress
from compress.quantize.activation_ranges import ActivationRanges
from compress.quantize.bias_shift import shift_bias
from compress.quantize.channel_errors import ChannelErrors
from compress.quantize.decision_log import DecisionLog
from compress.quantize.decisions import Decisions, LayerResult
from compress.quantize.executor import Subgraph
from compress.quantize.graph import Array
from compress.quantize.memory_estimate import count_walked
from compress.quantize.placement import QuantizedNode
from compress.quantize.prefix import Prefix
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.qdq_nodes import qdq_nodes
from compress.quantize.qparams import QParams, fake_quantize
from compress.quantize.settings import QuantizeSettings
from compress.quantize.side_by_side import map_ahead
from compress.quantize.steps import Step, plan_steps
from compress.quantize.survey import not_finite
from compress.quantize.weight_choice import WeightChoice
from compress.sqnr import SignalToNoise

AS_EXACT_DB = 100.0
"""More than eight bits ever have."""
Written = Mapping[str, Array]
"""What a step writes for one sample."""
Note = TypeVar("Note")


class StreamingPass:
    """One walk through a graph.

    Places that are chosen for layers that follow (by TopK or NonMaxSuppression) are the float
    network's in the quantized prefix too: in another order, rows that do not belong together would
    be compared, and layers corrected towards their mean.

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
        self._steps = plan_steps(prepared.graph, self._quantized, prepared.find_float_layers())
        self._choices = frozenset(read_choices(prepared.graph.nodes, prepared.graph.outputs))
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
        cap = self._settings.memory_cap_bytes
        with Prefix(self._graph, len(self._walked), cap) as self._prefix:
            for place, index in enumerate(self._walked):
                for name, array in samples[index].items():
                    self._prefix.put_float(name, place, array)
            for done, step in enumerate(self._steps):
                if progress is not None:
                    progress("calibrate", done, len(self._steps))
                if step.moved:
                    self._run_movement(step)
                elif step.float_layer is not None and not self._prefix.is_clean(step):
                    self._run_float_layer(step, step.float_layer)
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
        for sample, computed in enumerate(map_ahead(compute, range(self._prefix.samples))):
            expected, got, note = computed
            for name, value in expected.items():
                self._prefix.put_float(name, sample, value)
            for name, value in got.items():
                if name not in self._choices:
                    self._prefix.put_noisy(name, sample, value)
            self._prefix.free(step, sample)
            notes.append(note)
        return notes

    def _run_float(self, step: Step) -> None:
        prefix = self._prefix
        plain, noisy = self._open_both(step)
        is_clean = noisy is plain and prefix.is_clean(step)

        def compute(sample: int) -> tuple[Written, Written, None]:
            expected = plain.run(prefix.float_feeds(step, sample))
            if is_clean:
                return expected, {}, None
            return expected, noisy.run(prefix.quantized_feeds(step, {}, sample)), None

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
        plain, noisy = self._open_both(step)
        return lambda sample: (
            plain.run(self._prefix.float_feeds(step, sample)),
            noisy.run(self._prefix.quantized_feeds(step, quantizers, sample)),
        )

    def _open_both(self, step: Step) -> tuple[Subgraph, Subgraph]:
        """Returns a step with the constants of the float network and with those of the file.

        Both are the same where none differs; one that does is the offset behind a MatMul, whose
        mean it gives back.
        """
        overrides = self._decisions.overrides
        plain = self._prefix.open(step, self._graph.weights)
        if not any(name in overrides for node in step.nodes for name in node.input):
            return plain, plain
        return plain, self._prefix.open(step, self._graph.weights | overrides)

    def _run_layer(self, step: Step, placed: QuantizedNode) -> None:
        node, layer = step.nodes[0], self._open_layer(step, placed)
        known = self._log.find_weight(node.name)
        weight, how = known or layer.choose()
        if known is None:
            self._log.keep_weight(node.name, weight, how)
        self._decisions.weights[node.name] = weight
        meter = self._walk_layer(layer, layer.open_with(weight.dequantize()))
        self._note(node, meter, how, weight.bits)

    def _run_float_layer(self, step: Step, axes: QuantizedNode) -> None:
        """Lets a layer in float make up for what was quantized before it."""
        node, layer = step.nodes[0], self._open_layer(step, axes)
        corrected = layer.correct_float()
        if corrected is None:
            self._walk_layer(layer, layer.plain)
            return
        name = self._graph.unused_name(f"{node.name}_weight_corrected")
        self._decisions.overrides[name] = corrected
        self._decisions.float_weights[node.name] = name
        self._walk_layer(layer, layer.open_with(corrected))

    def _open_layer(self, step: Step, placed: QuantizedNode) -> WeightChoice:
        return WeightChoice(
            graph=self._graph,
            prefix=self._prefix,
            settings=self._settings,
            decisions=self._decisions,
            step=step,
            placed=placed,
            quantizers=self._quantizers(step),
            plain=self._prefix.open(step, self._graph.weights),
            weighs_alone=self._weighs_layers,
        )

    def _walk_layer(self, layer: WeightChoice, noisy: Subgraph) -> SignalToNoise:
        """Computes a layer, gives its bias what its output's mean lacks, and measures the rest.

        Args:
            layer: the layer.
            noisy: the same with the weight that was chosen.
        """
        prefix, step, placed, node = self._prefix, layer.step, layer.placed, layer.node
        result = node.output[0]

        def compute(sample: int) -> tuple[Written, Written, ChannelErrors]:
            expected = layer.plain.run(prefix.float_feeds(step, sample))
            got = noisy.run(prefix.quantized_feeds(step, layer.quantizers, sample))
            errors = ChannelErrors.of(expected[result], got[result], placed.output_axis)
            if not np.isfinite(errors.signal) and not np.isfinite(expected[result]).all():
                what = f"'{result}', the output of node '{node.name}',"
                raise not_finite(what, self._walked[sample])
            return expected, got, errors

        errors = ChannelErrors.sum(self._walk(step, compute))
        shift = errors.means
        if not self._settings.bias_correction or not shift_bias(
            self._graph, self._decisions, node, shift
        ):
            return errors.meter()
        self._move(result, shift, placed.output_axis)
        return errors.meter(shift)

    def _move(self, tensor: str, shift: NDArray[np.float64], axis: int) -> None:
        """Adds a constant per channel to what the quantized prefix has, where it lies."""
        prefix = self._prefix
        shape = [1] * prefix.float_value(tensor, 0).ndim
        shape[axis] = -1
        offset = shift.astype(np.float32).reshape(shape)

        def move(sample: int) -> Array:
            value = prefix.noisy_value(tensor, sample)
            return np.add(value, offset, out=value if value.flags.writeable else None)

        for sample, moved in enumerate(map_ahead(move, range(prefix.samples))):
            prefix.put_noisy(tensor, sample, moved)

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

    def _quantizers(self, step: Step) -> dict[str, Subgraph]:
        return {tensor: self._quantizer(node, tensor) for tensor, node in step.entering.items()}

    def _quantizer(self, node: onnx.NodeProto, tensor: str) -> Subgraph:
        """Returns a tensor's Q/DQ pair ready to run; `node` is the one that reads it."""
        qparams = self._ranges.decide(tensor, partial(self._output_error, node, tensor))
        nodes, constants = qdq_nodes(tensor, qparams)
        example = {tensor: self._prefix.noisy_value(tensor, 0)}
        outputs = [nodes[1].output[0]]
        return self._prefix.open_nodes(nodes, constants, example, outputs, is_exact=True)

    def _output_error(self, node: onnx.NodeProto, tensor: str, qparams: QParams) -> float:
        """Returns the squared error of a node's output when one input is rounded, means corrected.

        The other inputs have the values of the quantized prefix; the reference is the float output.
        """
        names = [name for name in read_tensors(node) if name not in self._graph.weights]
        prefix = self._prefix
        feeds = {name: prefix.float_value(name, 0) for name in names}
        layer = Subgraph(self._graph, [node], self._graph.weights, feeds, [node.output[0]])
        error = 0.0
        for sample in range(prefix.samples):
            wanted = layer.run({name: prefix.float_value(name, sample) for name in names})
            noisy = {name: prefix.noisy_value(name, sample) for name in names}
            noisy[tensor] = fake_quantize(noisy[tensor], qparams)
            difference = layer.run(noisy)[node.output[0]] - wanted[node.output[0]]
            if difference.ndim == 4:
                difference -= difference.mean(axis=(0, 2, 3), keepdims=True)
            error += float(np.sum(np.square(difference, dtype=np.float64)))
        return error

    def _measure_outputs(self) -> None:
        for output, tensors in self._graph.results.items():
            computed = [name for name in tensors if name not in self._graph.weights]
            if not computed:
                continue
            self._decisions.outputs_db[output] = min(map(self._measure, computed))
            if self._is_fitted(output, computed):
                self._decisions.fitted_outputs.append(output)
            constants = [how for how in map(self._describe_constant, computed) if how is not None]
            if len(constants) == len(computed):
                self._decisions.constant_outputs[output] = " and ".join(dict.fromkeys(constants))
        for part in self._graph.find_parts():
            self._decisions.parts_db[part.name] = self._measure(part.tensor, part)

    def _is_fitted(self, output: str, tensors: Sequence[str]) -> bool:
        """Whether biases gave an output back all that it lost: those of vectors of one sample."""
        is_exact = self._decisions.outputs_db[output] > AS_EXACT_DB
        is_quantized = any(map(self._prefix.is_quantized, tensors))
        return self._prefix.samples == 1 and is_exact and is_quantized

    def _describe_constant(self, tensor: str) -> str | None:
        """Returns how a tensor is constant in the float network; None where samples change it."""
        samples = range(self._prefix.samples)
        return describe_constant(self._prefix.float_value(tensor, sample) for sample in samples)

    def _measure(self, tensor: str, part: OutputPart | None = None) -> float:
        meter = SignalToNoise()
        for sample in range(self._prefix.samples):
            pair = (
                self._prefix.float_value(tensor, sample),
                self._prefix.noisy_value(tensor, sample),
            )
            meter.update(*(pair if part is None else map(part.take, pair)))
        return meter.sqnr_db
