"""A float network made ready for quantization: simplified, placed, equalized."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from artifacts.errors import InputError
from artifacts.half_precision import widen_half
from artifacts.opset import require_opset
from artifacts.samples import pick_evenly
from artifacts.wording import suggest_names
from compress.decided_outputs import set_decisions_aside
from compress.errors import AlreadyQuantizedError, CalibrationError
from compress.progress import Progress
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.decisions import Decisions
from compress.quantize.graph import Array, Graph, attribute
from compress.quantize.insert import insert_qdq
from compress.quantize.pixel_extremes import reach_pixel_extremes
from compress.quantize.placement import Declined, Placement, QuantizedNode, find_read
from compress.quantize.placement.layers import LAYERS, quantize_layer
from compress.quantize.repairs.centered_ranges import (
    CenteredRange,
    center_ranges,
    describe_centered,
    uncenter,
)
from compress.quantize.repairs.channel_scales import fold_idle_scales, scale_channels
from compress.quantize.repairs.contract import ScaleRepair
from compress.quantize.repairs.equalization import ENOUGH_SAMPLES, equalize
from compress.quantize.repairs.input_scales import scale_inputs
from compress.quantize.repairs.joined_scales import fold_idle_joined, scale_joined
from compress.quantize.repairs.migration import migrate_scales
from compress.quantize.requantize import requantize, requantize_plain
from compress.quantize.search.stress import make_unlike
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import fold_affines, share_equal_weights, simplify
from compress.quantize.survey import Survey, list_ranged, measure_growth, survey_tensors

_log = logging.getLogger(__name__)

INTEGER_OPERATORS = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger"}
)

RESCALING: tuple[ScaleRepair, ...] = (equalize, migrate_scales)
"""Repairs that cost no time: factors move from layer to layer."""
PRODUCTS: tuple[ScaleRepair, ...] = (scale_joined, scale_channels, scale_inputs)
"""Repairs that may insert products, which serve activations in integers only."""
FEW_SAMPLES = ENOUGH_SAMPLES
"""Calibration samples, evenly spread, that repairs are tried on and pictures are altered of."""
TYPICAL_GROWTH = 1.25
"""Where altered pictures widen most ranges by more, they are unlike anything the network was made
for: those of trained networks hardly grow, and a quarter costs 2 dB."""
MOST_GROWTH = 3.0
"""A single range that they widen by more would lose one and a half bits, and is left alone."""


@dataclass(frozen=True, kw_only=True)
class PreparedNetwork:
    """What every quantization of one network starts from.

    Attributes:
        graph: simplified and equalized, still in float; its results are those of the network.
        placement: chooses edges and integers.
        quantized: the nodes to quantize, in topological order.
        declined: nodes that were looked at and stay in float, with the reason.
        simplified: what was folded or rescaled, a line each.
        weights_only: activations stay in float.
        kept: names of nodes that the caller keeps in float.
        survey: values of the tensors that ranges were asked for so far.
        centered: the activations that were moved to use all integers.
    """

    graph: Graph
    placement: Placement
    quantized: tuple[QuantizedNode, ...]
    declined: tuple[Declined, ...]
    simplified: tuple[str, ...]
    weights_only: bool = False
    kept: frozenset[str] = frozenset()
    survey: Survey = field(default_factory=dict)
    centered: tuple[CenteredRange, ...] = ()

    def with_float_nodes(self, names: frozenset[str]) -> "PreparedNetwork":
        """Returns the same network with the nodes called `names` kept in float as well."""
        kept = self.kept | names
        quantized, declined = self.placement.place(self.graph, kept)
        if self.weights_only:
            quantized = [
                replace(item, activations=(), tied="")
                for item in quantized
                if item.weight is not None
            ]
        network = replace(self, quantized=tuple(quantized), declined=tuple(declined), kept=kept)
        return network._without_idle_ranges()

    def find_float_layers(self) -> dict[str, QuantizedNode]:
        """Returns the layers in float whose weights may make up for errors, and their axes."""
        chosen = {item.node for item in self.quantized}
        answers = [
            quantize_layer(self.graph, node)
            for node in self.graph.nodes
            if node.op_type in LAYERS and node.name not in chosen
        ]
        return {
            item.node: replace(item, activations=())
            for item in answers
            if isinstance(item, QuantizedNode)
        }

    def _without_idle_ranges(self) -> "PreparedNetwork":
        """Moves back what no node reads in integers any more."""
        read = find_read(self.graph, self.quantized)
        idle = [item for item in self.centered if not read & set(item.region.tensors)]
        if not idle:
            return self
        centered = tuple(item for item in self.centered if item not in idle)
        return replace(self, graph=uncenter(self.graph, idle), centered=centered)

    def write_model(self, decisions: Decisions) -> onnx.ModelProto:
        """Returns the network with Q/DQ pairs.

        Args:
            decisions: qparams and integers for all `quantized` nodes.
        """
        return self._write(self.quantized, decisions)

    def write_beginning(self, decisions: Decisions, count: int) -> onnx.ModelProto:
        """Returns the network with its first `count` nodes quantized, and all behind them in float.

        Args:
            decisions: qparams and integers for all `quantized` nodes.
            count: fewer than these.
        """
        places = {node.name: place for place, node in enumerate(self.graph.nodes)}
        end = places[self.quantized[count].node]
        begun = {name for name, place in places.items() if place < end}
        kept = replace(
            decisions,
            biases={name: bias for name, bias in decisions.biases.items() if name in begun},
            float_weights={
                name: weight for name, weight in decisions.float_weights.items() if name in begun
            },
            overrides={
                name: value
                for name, value in decisions.overrides.items()
                if name not in self.graph.weights or self._makes_offset(name) in begun
            },
        )
        return self._write(self.quantized[:count], kept)

    def _makes_offset(self, constant: str) -> str:
        """Returns the name of the MatMul whose result a constant is added to."""
        (add,) = self.graph.consumers(constant)
        makers = (self.graph.producer(name) for name in add.input if name != constant)
        return next(str(maker.name) for maker in makers if maker is not None)

    def write_float(self) -> onnx.ModelProto:
        """Returns the network in float, without what only helps integers."""
        graph = uncenter(self.graph, self.centered)
        self.placement.write_late_forms(graph, ())
        fold_idle_scales(graph)
        fold_idle_joined(graph)
        return graph.to_model()

    def write_uncorrected(
        self, decisions: Decisions, only: frozenset[str] | None = None
    ) -> onnx.ModelProto:
        """Returns the network with Q/DQ pairs by decisions for a network that quantizes more.

        Biases stay as they are, and weights make up for nothing but their own layer's rounding:
        they were corrected for all that is quantized before them.

        Args:
            decisions: qparams and integers; nodes without them stay in float.
            only: names of the nodes to quantize; None for all.
        """
        return self._write(*self._uncorrected(decisions, only))

    def insert_uncorrected(self, decisions: Decisions, only: frozenset[str]) -> Graph:
        """Returns the graph of `write_uncorrected` with all float nodes as they are."""
        graph = self.graph.copy()
        self._insert(graph, *self._uncorrected(decisions, only))
        return graph

    def _uncorrected(
        self, decisions: Decisions, only: frozenset[str] | None
    ) -> tuple[list[QuantizedNode], Decisions]:
        chosen = [
            item
            for item in self.quantized
            if (only is None or item.node in only) and self._is_decided(item, decisions)
        ]
        weights = decisions.weights | decisions.alone
        return chosen, replace(
            decisions, weights=weights, overrides={}, biases={}, float_weights={}
        )

    def _write(self, quantized: Sequence[QuantizedNode], decisions: Decisions) -> onnx.ModelProto:
        graph = self.graph.copy()
        self.placement.write_late_forms(graph, {item.node for item in quantized})
        self._insert(graph, quantized, decisions)
        fold_idle_scales(graph)
        fold_idle_joined(graph)
        return graph.to_model()

    def _insert(
        self, graph: Graph, quantized: Sequence[QuantizedNode], decisions: Decisions
    ) -> None:
        insert_qdq(graph, quantized, decisions, self.placement.find_passed(graph, quantized))

    def _is_decided(self, item: QuantizedNode, decisions: Decisions) -> bool:
        node = self.graph.node(item.node)
        tensors = [node.input[position] for position in item.activations]
        has_weight = item.weight is None or item.node in decisions.weights
        return has_weight and all(tensor in decisions.activations for tensor in tensors)


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
    graph, simplified = _open_graph(model, settings)
    placement = settings.placement
    quantized, declined = placement.place(graph, frozenset(settings.keep_float))
    if not any(item.weight is not None for item in quantized):
        raise _nothing_to_quantize(graph, declined)
    few = pick_evenly(samples, FEW_SAMPLES)
    is_float = settings.activations == "float"
    ranged = [] if is_float else list_ranged(graph, quantized)
    channels = ChannelSurvey(few if is_float else samples, ranged, progress)
    if settings.equalization and not is_draft:
        names = [item.node for item in quantized]
        for repair in RESCALING if is_float else (*RESCALING, *PRODUCTS):
            simplified += repair(graph, channels, placement, names, settings.weight_grids)
        share_equal_weights(graph)
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
        weights_only=settings.activations == "float",
        survey=survey,
        centered=centered,
    )
    return prepared.with_float_nodes(frozenset(settings.keep_float))


def _already_quantized(model: onnx.ModelProto, node: onnx.NodeProto) -> AlreadyQuantizedError:
    """Returns the error that names the first integers, and says how many layers read such."""
    made = {name: item.op_type for item in model.graph.node for name in item.output}
    layers = [item for item in model.graph.node if item.op_type in LAYERS]
    quantized = sum(
        any(made.get(name) == "DequantizeLinear" for name in item.input[1:2]) for item in layers
    )
    edges = f" (of its {len(layers)} layers, {quantized} have integer weights)" * bool(layers)
    return AlreadyQuantizedError(
        f"the network is quantized already: node '{node.name}' is {node.op_type}{edges}",
        "a float network",
        "take the one that it was made from, or export it without its Q/DQ pairs",
    )


def _open_graph(model: onnx.ModelProto, settings: QuantizeSettings) -> tuple[Graph, list[str]]:
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
    altered = make_unlike(samples)
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
