"""Quantizes an ONNX model: `quantize_model` is what the command line and users call."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from artifacts.errors import InputError
from compress.errors import AlreadyQuantizedError, CalibrationError
from compress.quantize.graph import Array, Graph
from compress.quantize.insert import insert_qdq
from compress.quantize.placement import PLACEMENTS, Declined
from compress.quantize.repairs.equalization import equalize
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import simplify
from compress.quantize.streaming import LayerResult, Progress, StreamingPass

INTEGER_OPERATORS = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger"}
)


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
    if len(samples) == 0:
        raise CalibrationError("there are no calibration samples", "at least 1")
    for node in model.graph.node:
        if node.op_type in INTEGER_OPERATORS:
            raise AlreadyQuantizedError(
                f"the network is quantized already: node '{node.name}' is {node.op_type}",
                "a float network",
            )
    graph = Graph(model)
    simplified = simplify(graph)
    unknown = set(settings.keep_float) - {node.name for node in graph.nodes}
    if unknown:
        raise InputError(f"keep_float names '{min(unknown)}', which is no node of the network")
    placement = PLACEMENTS[settings.target]()
    quantized, declined = placement.place(graph, frozenset(settings.keep_float))
    if not any(item.weight is not None for item in quantized):
        raise InputError(
            "the network has nothing to quantize",
            "a Conv, ConvTranspose, Gemm or MatMul with constant float32 weights",
        )
    if settings.equalization:
        names = [item.node for item in quantized]
        simplified += equalize(graph, samples, placement, names)
    decisions = StreamingPass(graph, placement, quantized, settings).run(samples, progress)
    insert_qdq(graph, quantized, decisions)
    return QuantizeResult(
        model=graph.to_model(),
        layers=tuple(decisions.layers),
        declined=tuple(declined),
        simplified=tuple(simplified),
        outputs_db=decisions.outputs_db,
    )
