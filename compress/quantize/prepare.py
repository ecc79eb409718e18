"""Makes a float network ready for quantization: simplified, placed, equalized."""

import logging
from collections.abc import Collection, Sequence

import numpy as np
import onnx

from artifacts.decided_outputs import read_choices
from artifacts.errors import InputError
from artifacts.half_precision import widen_half
from artifacts.opset import require_opset
from artifacts.samples import pick_evenly
from artifacts.wording import name_some, suggest_names
from compress.decided_outputs import set_decisions_aside
from compress.errors import AlreadyQuantizedError, CalibrationError
from compress.progress import Progress
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Array, Graph, attribute
from compress.quantize.pixel_extremes import reach_pixel_extremes
from compress.quantize.placement import Declined, Placement, QuantizedNode
from compress.quantize.placement.layers import LAYERS
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.repairs.centered_ranges import (
    CenteredRange,
    center_ranges,
    describe_centered,
)
from compress.quantize.repairs.channel_scales import scale_channels
from compress.quantize.repairs.contract import ScaleRepair
from compress.quantize.repairs.equalization import ENOUGH_SAMPLES, equalize
from compress.quantize.repairs.input_scales import scale_inputs
from compress.quantize.repairs.joined_levels import level_joined
from compress.quantize.repairs.joined_scales import scale_joined
from compress.quantize.repairs.migration import migrate_scales
from compress.quantize.repairs.written_levels import level_channels
from compress.quantize.requantize import requantize, requantize_plain
from compress.quantize.search.stress import make_unlike
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import fold_affines, share_equal_weights, simplify
from compress.quantize.survey import (
    Survey,
    are_large,
    list_ranged,
    measure_growth,
    survey_tensors,
)

_log = logging.getLogger(__name__)

_INTEGER_LAYERS = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Layers with integer weights of their own, those of onnxruntime's domain included."""
INTEGER_OPERATORS = _INTEGER_LAYERS | {
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "QuantizeLinear",
}

RESCALING: tuple[ScaleRepair, ...] = (level_channels, level_joined, equalize, migrate_scales)
"""Repairs that cost no time: factors move from layer to layer."""
PRODUCTS: tuple[ScaleRepair, ...] = (scale_joined, scale_channels, scale_inputs)
"""Repairs that may insert products, which serve activations in integers only."""
FEW_SAMPLES = ENOUGH_SAMPLES
"""Calibration samples, evenly spread, that repairs are tried on and pictures are altered of."""
FEW_LARGE = 4
"""Pictures that are altered where they are large: each holds as much as many small ones do, and
takes as long to look at."""
TYPICAL_GROWTH = 1.25
"""Where altered pictures widen most ranges by more, they are unlike anything the network was made
for: those of trained networks hardly grow, and a quarter costs 2 dB."""
MOST_GROWTH = 3.0
"""A single range that they widen by more would lose one and a half bits, and is left alone."""


def prepare_network(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    progress: Progress | None = None,
    *,
    is_draft: bool = False,
) -> PreparedNetwork:
    """Simplifies a float model, places Q/DQ pairs and rescales channels where that helps.

    Args:
        model: checked, of static shapes and opset 13 or newer; it is not changed.
        samples: calibration samples: a few measure what a repair brings, all are surveyed.
        settings: how to quantize.
        progress: is told ("survey", samples done, samples in all).
        is_draft: only latency matters: no channels are rescaled, no samples altered.

    Raises:
        AlreadyQuantizedError: the model holds integer operators.
        CalibrationError: there are no samples, or an activation is NaN or infinite.
        InputError: `keep_float` names no node, or nothing can be quantized.
    """
    if len(samples) == 0:
        raise CalibrationError("there are no calibration samples", "at least 1")
    for node in model.graph.node:
        if node.op_type in INTEGER_OPERATORS:
            raise _already_quantized(model, node)
    graph, simplified = open_graph(model, settings)
    placement = settings.placement
    unreached = _find_unreached(graph, placement, samples, warns=not is_draft)
    kept = unreached | frozenset(settings.keep_float)
    quantized, declined = placement.place(graph, kept)
    if not any(item.weight is not None for item in quantized):
        raise _nothing_to_quantize(graph, declined)
    few = pick_evenly(samples, FEW_SAMPLES)
    is_float = settings.activations == "float"
    ranged = [] if is_float else list_ranged(graph, quantized)
    channels = ChannelSurvey(few if is_float else samples, ranged, progress)
    if settings.equalization and not is_draft:
        names = [item.node for item in quantized]
        simplified += _rescale(graph, channels, names, settings)
    if written := placement.write_rescaled_forms(graph):
        simplified += written
        share_equal_weights(graph)
        quantized, _ = placement.place(graph, kept)
    survey: Survey = {}
    centered: tuple[CenteredRange, ...] = ()
    if not is_float:
        survey = _survey(channels, graph, quantized, progress)
        if not is_draft and (settings.weighs_quality or len(samples) < FEW_SAMPLES):
            _survey_altered(survey, graph, few, progress)
        simplified += requantize(graph, quantized, survey, placement, settings.observer)
        simplified += requantize_plain(graph, quantized, survey, placement)
        if settings.centers_ranges and not is_draft:
            centered = center_ranges(graph, quantized, survey, settings.observer, placement)
            simplified += describe_centered(centered)
    prepared = PreparedNetwork(
        graph=graph,
        placement=placement,
        quantized=(),
        declined=(),
        simplified=tuple(simplified),
        weights_only=is_float,
        survey=survey,
        centered=centered,
    )
    return prepared.with_float_nodes(kept)


def _find_unreached(
    graph: Graph, placement: Placement, samples: Sequence[dict[str, Array]], *, warns: bool
) -> frozenset[str]:
    """Returns the layers that no sample reaches: those of regions of interest, where none is found.

    Only what is chosen in the middle of a network can leave a layer nothing to read. `warns`: such
    layers are named.
    """
    if not read_choices(graph.nodes, graph.outputs):
        return frozenset()
    quantized, _ = placement.place(graph, frozenset())
    read = {
        item.node: {graph.node(item.node).input[position] for position in item.activations}
        for item in quantized
    }
    sizes_vary = sorted({name for names in read.values() for name in names} - graph.shapes.keys())
    empty = {
        name for name, seen in survey_tensors(graph, sizes_vary, samples).items() if seen.is_empty
    }
    unreached = frozenset(node for node, names in read.items() if names & empty)
    if unreached and warns:
        _log.warning(
            "no calibration sample reaches %s, for which the network has found nothing: left in "
            "float; give samples of the field, prepared as in training",
            name_some(sorted(unreached), 3),
        )
    return unreached


def _rescale(
    graph: Graph, channels: ChannelSurvey, names: Sequence[str], settings: QuantizeSettings
) -> list[str]:
    """Rescales channels in place where that helps; returns a line for each time it does."""
    done: list[str] = []
    for repair in RESCALING if settings.activations == "float" else (*RESCALING, *PRODUCTS):
        done += repair(graph, channels, settings.placement, names, settings.weight_grids)
    share_equal_weights(graph)
    return done


def _already_quantized(model: onnx.ModelProto, node: onnx.NodeProto) -> AlreadyQuantizedError:
    """Returns the error that names the first integers, and says how many layers read such."""
    made = {name: item.op_type for item in model.graph.node for name in item.output}
    layers = [item for item in model.graph.node if item.op_type in LAYERS | _INTEGER_LAYERS]
    quantized = sum(
        item.op_type in _INTEGER_LAYERS
        or any(made.get(name) == "DequantizeLinear" for name in item.input[1:2])
        for item in layers
    )
    edges = f" (of its {len(layers)} layers, {quantized} have integer weights)" * bool(layers)
    return AlreadyQuantizedError(
        f"the network is quantized already: node '{node.name}' is {node.op_type}{edges}",
        "a float network",
        "take the one that it was made from, or export it without its Q/DQ pairs",
    )


def open_graph(model: onnx.ModelProto, settings: QuantizeSettings) -> tuple[Graph, list[str]]:
    """Returns the float network in the forms that the target likes, and what was done to it."""
    wide = widen_half(model)
    done = [] if wide is model else ["float16 and bfloat16 became float32, but for inputs, outputs"]
    graph = Graph(
        require_opset(wide, settings.opset, f"{settings.weights} with {settings.activations}")
    )
    done += simplify(graph)
    _refuse_training(graph)
    _check_names(settings.keep_float, [node.name for node in graph.nodes])
    done += set_decisions_aside(graph)
    done += settings.placement.write_forms(graph)
    done += fold_affines(graph)
    share_equal_weights(graph)
    return graph, done


def _check_names(given: Collection[str], nodes: Sequence[str]) -> None:
    """Refuses names of nodes that the network does not have.

    Raises:
        InputError: with the names that are most like the first of these.
    """
    unknown = sorted(set(given) - set(nodes))
    if unknown:
        raise InputError(
            f"keep_float names '{unknown[0]}', which is no node of the network",
            f"the name of a node, such as {suggest_names(unknown[0], nodes, nodes[:3])}",
            "compress quantize --verbose lists all that can be quantized",
        )


def _nothing_to_quantize(graph: Graph, declined: Sequence[Declined]) -> InputError:
    """Returns the error that says why the first layer stays in float, if there is any."""
    what = "the network has nothing to quantize"
    wanted = "a Conv, ConvTranspose, Gemm or MatMul with constant float32 weights"
    layers = [item for item in declined if graph.node(item.node).op_type in LAYERS]
    if not layers:
        return InputError(what, wanted)
    others = f", and so do {len(layers) - 1} more" if len(layers) > 1 else ""
    why = f"layer '{layers[0].node}' stays in float, because {layers[0].reason}{others}"
    is_double = any(value.dtype == np.float64 for value in graph.weights.values())
    fix = "leave it in float on this target, or choose another one"
    if is_double:
        fix = "export it in float32 (in PyTorch: model.float())"
    return InputError(f"{what}: {why}", wanted, fix)


def _refuse_training(graph: Graph) -> None:
    """Refuses a network that drops values at random, or normalizes by the statistics of a batch."""
    for node in graph.nodes:
        is_training = bool(attribute(node, "training_mode", 0))
        if node.op_type == "Dropout" and len(node.input) > 2:
            is_training = bool(np.any(graph.weights.get(node.input[2], False)))
        if is_training:
            raise InputError(
                f"node '{node.name}' ({node.op_type}) is in training mode",
                "a network that computes the same every time",
                "export it after model.eval()",
            )


def _survey(
    channels: ChannelSurvey,
    graph: Graph,
    quantized: Sequence[QuantizedNode],
    progress: Progress | None,
) -> Survey:
    """Returns what the tensors hold that get a range; what no repair looked at is computed."""
    ranged = list_ranged(graph, quantized)
    known = channels.take(ranged)
    unknown = [name for name in ranged if name not in known or not known[name].is_finite]
    survey = known | survey_tensors(graph, unknown, channels.samples, progress)
    reach_pixel_extremes(survey, graph, channels.samples, MOST_GROWTH)
    return survey


def _survey_altered(
    survey: Survey,
    graph: Graph,
    samples: Sequence[dict[str, Array]],
    progress: Progress | None,
) -> None:
    """Looks at altered pictures too, unless they are nothing that the network can work with."""
    few = pick_evenly(samples, FEW_LARGE) if are_large(graph, list(survey)) else samples
    altered = make_unlike(few)
    if not altered:
        return
    try:
        unlike = survey_tensors(graph, list(survey), altered, progress, "survey altered pictures")
    except CalibrationError:
        _log.info("altered pictures lead to NaN or infinity: the samples alone choose ranges")
        return
    growths = measure_growth(survey, unlike)
    typical = float(np.median(list(growths.values())))
    if typical > TYPICAL_GROWTH:
        _log.info(
            "altered pictures make most ranges %.1f times as wide: the samples alone choose ranges",
            typical,
        )
        return
    for name, seen in unlike.items():
        if growths[name] <= MOST_GROWTH:
            survey[name].extend(seen)
