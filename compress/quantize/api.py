"""Quantizes an ONNX model: `quantize_model` is what the command line and users call."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from compress.quantize.graph import Array
from compress.quantize.placement import Declined
from compress.quantize.prepared import prepare_network
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import LayerResult, Progress, StreamingPass


@dataclass(frozen=True, kw_only=True)
class QuantizeResult:
    """A quantized model and what was done to it.

    Attributes:
        model: with Q/DQ pairs and integer weights, same inputs and outputs as the float one.
        layers: one entry per quantized node, in topological order.
        declined: nodes that were looked at and stay in float, with the reason.
        simplified: what was folded before, a line each.
        outputs_db: SQNR of each output on the calibration samples, in dB.
    """

    model: onnx.ModelProto
    layers: tuple[LayerResult, ...]
    declined: tuple[Declined, ...]
    simplified: tuple[str, ...]
    outputs_db: dict[str, float]


def quantize_model(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings | None = None,
    progress: Progress | None = None,
) -> QuantizeResult:
    """Quantizes a float model with calibration samples.

    Args:
        model: checked, of static shapes and opset 13 or newer (`artifacts.onnx_file.load_onnx`);
            it is not changed.
        samples: one dictionary of input arrays (batch axis included) per sample.
        settings: how; the defaults suit TensorRT.
        progress: is told (what, done, total).

    Returns:
        the quantized model with its report.

    Raises:
        AlreadyQuantizedError: the model holds integer operators.
        CalibrationError: there are no samples, or an activation is NaN or infinite.
        InputError: nothing in it can be quantized, or an operator cannot be run.
    """
    settings = settings or QuantizeSettings()
    prepared = prepare_network(model, samples, settings)
    decisions = StreamingPass(prepared.graph, prepared.placement, prepared.quantized, settings).run(
        samples, progress
    )
    return QuantizeResult(
        model=prepared.write_model(decisions),
        layers=tuple(decisions.layers),
        declined=prepared.declined,
        simplified=prepared.simplified,
        outputs_db=decisions.outputs_db,
    )
