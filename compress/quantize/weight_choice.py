"""Chooses the weight of one layer on the way through a network: its integers, or in float."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from compress.quantize.bias_shift import find_next_offset
from compress.quantize.decisions import Decisions
from compress.quantize.executor import Subgraph
from compress.quantize.graph import Array, Graph
from compress.quantize.layer_plan import LayerPlan
from compress.quantize.layer_weights import QuantizedWeight
from compress.quantize.placement import QuantizedNode
from compress.quantize.prefix import Prefix
from compress.quantize.qparams import IntegerGrid
from compress.quantize.repairs.input_correction import ChannelInputs, correct_for_inputs
from compress.quantize.rounding.round_layer import LayerInputs
from compress.quantize.rounding.window import Window
from compress.quantize.settings import QuantizeSettings
from compress.quantize.side_by_side import map_ahead
from compress.quantize.steps import Step

SHARED_LOSS = 1.05
"""A layer takes the integers of another that shares its weight if its error grows by no more."""


@dataclass(frozen=True, kw_only=True)
class WeightChoice:
    """A layer with a weight, and what is known when the walk reaches it.

    Attributes:
        graph: the float network.
        prefix: the activations so far.
        settings: rounding and the rest.
        decisions: those made so far; integers "alone" are added.
        step: the layer's.
        placed: what of it is quantized.
        quantizers: the Q/DQ pairs of its inputs.
        plain: the float layer, open.
        weighs_alone: whether integers are wanted that make up for this layer's rounding only.
    """

    graph: Graph
    prefix: Prefix
    settings: QuantizeSettings
    decisions: Decisions
    step: Step
    placed: QuantizedNode
    quantizers: Mapping[str, Subgraph]
    plain: Subgraph
    weighs_alone: bool

    @property
    def node(self) -> onnx.NodeProto:
        """The layer."""
        return self.step.nodes[0]

    def choose(self) -> tuple[QuantizedWeight, str]:
        """Returns the layer's integers, and how they were found.

        Those of a layer before it that reads the same weight are taken where they do as well, so
        that the file holds them once.
        """
        weight, how = self._round()
        name = self.node.input[1]
        for reader in self.graph.consumers(name):
            shared = self.decisions.weights.get(reader.name)
            if shared is None or reader.input[1] != name or not _are_alike(shared, weight):
                continue
            if self._measure(shared) <= self._measure(weight) * SHARED_LOSS:
                return shared, f"as in {reader.name}"
        return weight, how

    def correct_float(self) -> Array | None:
        """Returns the weight of a layer that stays in float, made up for its inputs' errors.

        None where it stays as it is: held-out pictures do not gain, or other nodes read it too.
        """
        is_shared = len(self.graph.consumers(self.node.input[1])) > 1
        if is_shared or not self.settings.input_correction:
            return None
        return self._correct(None, self._find_inputs(), self.prefix.noisy_value)

    def open_with(self, weight: Array) -> Subgraph:
        """Returns the layer with other values for its weight, ready to run."""
        constants = self.graph.weights | {self.node.input[1]: weight}
        return self.prefix.open(self.step, constants)

    def _measure(self, weight: QuantizedWeight) -> float:
        """Returns the squared error of the layer's output with such integers, means corrected."""
        noisy = self.open_with(weight.dequantize())
        result = self.node.output[0]

        def compare(sample: int) -> Array:
            wanted = self.plain.run(self.prefix.float_feeds(self.step, sample))[result]
            feeds = self.prefix.quantized_feeds(self.step, self.quantizers, sample)
            difference = wanted - noisy.run(feeds)[result]
            channels = np.moveaxis(difference, self.placed.output_axis, 0).astype(np.float64)
            flat = channels.reshape(len(channels), -1)
            return np.stack([flat.mean(axis=1), np.square(flat).mean(axis=1)])

        means, squares = np.mean(list(map_ahead(compare, range(self.prefix.samples))), axis=0)
        is_centered = self.settings.bias_correction
        return float(np.sum(squares - np.square(means) if is_centered else squares))

    def _find_inputs(self) -> LayerInputs:
        node, prefix = self.node, self.prefix
        weight = self.graph.weights[node.input[1]]
        tensor = node.input[0]

        def read(sample: int) -> tuple[Array, Array]:
            feeds = prefix.quantized_feeds(self.step, self.quantizers, sample)
            return prefix.float_value(tensor, sample), feeds[tensor]

        has_offset = node.op_type != "MatMul" or find_next_offset(self.graph, node, weight.shape[1])
        return LayerInputs(
            samples=prefix.samples,
            read=read,
            output_shape=self.plain.run(prefix.float_feeds(self.step, 0))[node.output[0]].shape,
            is_centered=self.settings.bias_correction and bool(has_offset),
        )

    def _round(self) -> tuple[QuantizedWeight, str]:
        node, prefix = self.node, self.prefix
        weight, inputs = self.graph.weights[node.input[1]], self._find_inputs()
        plan = LayerPlan.of(self.graph, self.placed, self.settings)
        if plan.rounding.needs_inputs or not self.settings.input_correction:
            return plan.round(weight, inputs)
        correct = partial(self._correct, plan.grid, inputs)
        corrected = correct(prefix.noisy_value)
        if corrected is None:
            return plan.round(weight, inputs)
        if self.weighs_alone:
            alone = correct(prefix.float_value)
            alone = weight if alone is None else alone
            self.decisions.alone[node.name], _ = plan.round(alone, inputs)
        integers, how = plan.round(corrected, inputs)
        return integers, f"{how}, inputs corrected"

    def _correct(
        self, grid: IntegerGrid | None, layer: LayerInputs, value: Callable[[str, int], Array]
    ) -> Array | None:
        """Returns the weight, made up for what `value` and rounding do to the layer's input."""
        tensor = self.node.input[0]
        is_rounded = 0 in self.placed.activations
        weight = self.graph.weights[self.node.input[1]]
        shape = self.prefix.float_value(tensor, 0).shape
        window = Window.of(self.node, weight.shape, shape, layer.output_shape)
        inputs = ChannelInputs(
            samples=self.prefix.samples,
            read=lambda sample: (self.prefix.float_value(tensor, sample), value(tensor, sample)),
            qparams=self.decisions.activations[tensor] if is_rounded else None,
            is_centered=layer.is_centered,
            covered=window.covered(shape),
        )
        return correct_for_inputs(self.node, weight, self.placed.weight_axis, grid, inputs)


def _are_alike(one: QuantizedWeight, other: QuantizedWeight) -> bool:
    return (one.axis, one.bits, one.scales.shape) == (other.axis, other.bits, other.scales.shape)
