"""A network's integers, chosen without a look at what they do: for its latency."""

from collections.abc import Sequence
from dataclasses import replace

from compress.quantize.activation_ranges import ActivationRanges
from compress.quantize.decisions import Decisions
from compress.quantize.graph import Array
from compress.quantize.layer_plan import LayerPlan
from compress.quantize.layer_weights import widest_scales
from compress.quantize.observers import MinMax
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.rounding import Nearest
from compress.quantize.settings import QuantizeSettings
from compress.quantize.steps import plan_steps


def draft_decisions(
    prepared: PreparedNetwork, settings: QuantizeSettings, samples: Sequence[dict[str, Array]]
) -> Decisions:
    """Returns the widest ranges and the nearest integers, of the right type at each place.

    Args:
        prepared: the network.
        settings: bits and grids; observer and rounding are not used.
        samples: for tensors that the survey lacks.
    """
    settings = replace(settings, observer=MinMax(), rounding=Nearest())
    ranges = ActivationRanges(prepared, settings)
    ranges.survey(samples)
    decisions = Decisions(activations=ranges.decided)
    for step in plan_steps(prepared.graph, {item.node: item for item in prepared.quantized}):
        for tensor in step.entering:
            ranges.decide(tensor)
        ranges.share(step.moved)
        if step.quantized is not None and step.quantized.weight is not None:
            plan = LayerPlan.of(prepared.graph, step.quantized, settings)
            plan = replace(plan, choose_scales=widest_scales)
            weight = prepared.graph.weights[plan.node.input[1]]
            decisions.weights[plan.node.name], _ = plan.round(weight, None)
    return decisions
