"""What quantizing a network gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from compress.quantize.decisions import LayerResult
from compress.quantize.placement import Declined
from compress.quantize.search.precision import PrecisionChoice
from compress.quantize.settings import QuantizeSettings


@dataclass(frozen=True, kw_only=True)
class CostlyLayers:
    """Layers that make most of the noise of an output by themselves.

    Attributes:
        layers: their names, each with the share of the noise that it makes, by output or part.
        int8_db: SQNR of outputs and parts with all layers quantized.
        float_db: the same with these in float; empty where that was not tried.
    """

    layers: Mapping[str, Mapping[str, float]]
    int8_db: Mapping[str, float]
    float_db: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class QuantizeResult:
    """A quantized model and what was done to it.

    Attributes:
        model: with Q/DQ pairs and integer weights, same inputs and outputs as the float one.
        layers: one entry per quantized node, in topological order.
        declined: nodes that were looked at and stay in float, with the reason.
        simplified: what was folded before, a line each.
        outputs_db: SQNR of each output in dB, on the samples that the streaming pass walked with.
        parts_db: the same for the parts of outputs that join unlike tensors (boxes and scores), see
            `artifacts.output_parts`.
        settings: those given, with what a measurement decided about forms (`timed_forms`).
        constant_outputs: those that the samples do not change in the float network, and how; what
            `outputs_db` says of them means nothing.
        fitted_outputs: those that biases made exact on the only sample; the same holds for them.
        costly: layers that make most of a poor output's noise, where there are such; they stay in
            float where `precision` says so.
        precision: which layers stay in float for quality or speed, and the measured times; None
            where nothing was timed.
    """

    model: onnx.ModelProto
    layers: tuple[LayerResult, ...]
    declined: tuple[Declined, ...]
    simplified: tuple[str, ...]
    outputs_db: dict[str, float]
    settings: QuantizeSettings
    precision: PrecisionChoice | None = None
    parts_db: dict[str, float] = field(default_factory=dict)
    costly: CostlyLayers | None = None
    constant_outputs: dict[str, str] = field(default_factory=dict)
    fitted_outputs: tuple[str, ...] = ()

    @property
    def measured_db(self) -> dict[str, float]:
        """SQNR in dB of all that was measured: the outputs, and the parts of some."""
        return self.outputs_db | self.parts_db
