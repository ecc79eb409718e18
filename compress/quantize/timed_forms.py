"""Forms of a network that only a measurement on the target can choose between.

Zero points: with one, a tensor that is seldom negative (SiLU, HardSwish) uses the whole grid, up to
a bit more than without. What that costs depends on the machine: with OpenVINO's kernels for AMX all
of YOLOv8n takes 1.37 times as long, with those for VNNI the same (`benchmarks/zero_points.py`).
Most of it is lost in padded Convs, so that the rest may keep its zero points.

Sums of integers: see `compress.quantize.placement.integer_sums`. SiLU with tanh: see
`compress.quantize.placement.openvino_forms`.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import onnx

from compress.quantize.decisions import Decisions
from compress.quantize.draft import draft_decisions
from compress.quantize.graph import Array
from compress.quantize.placement.openvino_forms import find_swishes
from compress.quantize.placement.padded_convs import find_padded_inputs
from compress.quantize.prepared import PreparedNetwork, prepare_network
from compress.quantize.qparams import IntegerGrid, QParams, qparams_for_range
from compress.quantize.search.precision import Clock
from compress.quantize.settings import PREFERENCES, QuantizeSettings
from compress.quantize.tied_scales import TiedScales

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Forms:
    """What was measured of a network's forms.

    Attributes:
        chosen: the settings with the form that was chosen for its latency.
        richer: the same with more zero points, where the preference would pay for their time.
    """

    chosen: QuantizeSettings
    richer: tuple[QuantizeSettings, ...] = ()


LEAST_GAIN = 0.05
"""Share of the latency that must be saved for the resolution to be given up, unless speed is what
is preferred."""
LEAST_SEEN = 0.02
"""A smaller share of the latency may be noise."""


def choose_forms(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    clock: Clock,
) -> Forms:
    """Decides what the settings leave open about forms, as is faster on the target.

    What is timed is a draft by one sample; repairs are kept for the network that is to be written.
    Sums are looked at last, in the network that has its other forms.

    Args:
        model: as for `quantize_model`.
        samples: its calibration samples.
        settings: how to quantize; chosen as they are for targets that leave no choice.
        clock: measures latencies on the target.
    """
    is_open = None in (settings.symmetric, settings.swish_by_tanh, settings.integer_sums)
    if settings.target != "openvino" or not is_open:
        return Forms(settings)
    network = prepare_network(model, samples[:1], settings, is_draft=True)
    forms = _choose_points(network, samples, settings, clock)
    return _choose_sums(network, samples, forms, clock)


def _choose_points(
    network: PreparedNetwork,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    clock: Clock,
) -> Forms:
    """Decides about zero points and about SiLU."""
    layers = {item.node for item in network.quantized}
    has_swish = settings.swish_by_tanh is None and bool(find_swishes(network.graph, layers))
    if settings.symmetric is not None and not has_swish:
        return Forms(settings)
    decisions = draft_decisions(network, settings, samples[:1])
    choices = [(settings, decisions)]
    if settings.symmetric is None:
        choices += _without_zero_points(network, settings, decisions)
    if has_swish:
        choices += [(replace(chosen, swish_by_tanh=True), decided) for chosen, decided in choices]
    if len(choices) == 1:
        return Forms(settings)
    times = clock(
        [
            replace(network, placement=chosen.placement).write_uncorrected(decided)
            for chosen, decided in choices
        ]
    )
    return _choose({chosen: ms for (chosen, _), ms in zip(choices, times, strict=True)})


def _choose_sums(
    network: PreparedNetwork, samples: Sequence[dict[str, Array]], forms: Forms, clock: Clock
) -> Forms:
    """Decides whether sums round both addends."""
    plain = forms.chosen
    if plain.integer_sums is not None:
        return forms
    summed = replace(plain, integer_sums=True)
    networks = [
        replace(network, placement=item.placement).with_float_nodes(network.kept)
        for item in (plain, summed)
    ]
    if networks[0].quantized == networks[1].quantized:
        return forms
    plain_ms, summed_ms = clock(
        [
            item.write_uncorrected(draft_decisions(item, settings, samples[:1]))
            for item, settings in zip(networks, (plain, summed), strict=True)
        ]
    )
    if summed_ms >= (1 - _least_gain(plain)) * plain_ms:
        return forms
    _log.info("sums round both addends, with which this network is faster here")
    allowed_ms = (1 + PREFERENCES[plain.prefer or "speed"].slowdown) * summed_ms
    richer = tuple(replace(item, integer_sums=True) for item in forms.richer)
    return Forms(summed, (*richer, plain) if plain_ms <= allowed_ms else richer)


def _without_zero_points(
    network: PreparedNetwork, settings: QuantizeSettings, decisions: Decisions
) -> list[tuple[QuantizeSettings, Decisions]]:
    """Returns the settings with fewer zero points, those with more of them first."""
    tied, padded = TiedScales(network.graph, network.quantized), find_padded_inputs(network.graph)
    full = decisions.activations
    none = {name: _without(qparams) for name, qparams in full.items()}
    some = {name: (none if padded & tied.group(name) else full)[name] for name in full}
    found = []
    if some not in (full, none):
        found.append((replace(settings, spares_padded=True), replace(decisions, activations=some)))
    if none != full:
        found.append((replace(settings, symmetric=True), replace(decisions, activations=none)))
    return found


def _choose(times: Mapping[QuantizeSettings, float]) -> Forms:
    """Returns the faster settings; those without a change where it gains too little."""

    def take(known: QuantizeSettings, other: QuantizeSettings, gain: float) -> QuantizeSettings:
        is_faster = other in times and times[other] < (1 - gain) * times[known]
        return other if is_faster else known

    first = next(iter(times))
    by_points = [
        take(points, replace(points, swish_by_tanh=True), LEAST_SEEN)
        for points in (first, replace(first, spares_padded=True), replace(first, symmetric=True))
        if points in times
    ]
    chosen = reduce(lambda known, fewer: take(known, fewer, _least_gain(first)), by_points)
    if chosen.symmetric != first.symmetric:
        _log.info("activations do without zero points, which make this network slower here")
    if chosen.spares_padded != first.spares_padded:
        _log.info("what padded Convs read has no zero points, which make this network slower here")
    if chosen.swish_by_tanh != first.swish_by_tanh:
        _log.info("SiLU is written with tanh, with which this network is faster here")
    allowed_ms = (1 + PREFERENCES[first.prefer or "speed"].slowdown) * times[chosen]
    more = by_points[: by_points.index(chosen)]
    return Forms(chosen, tuple(item for item in more if times[item] <= allowed_ms))


def _least_gain(settings: QuantizeSettings) -> float:
    """Returns the share of the latency that a form must save which costs quality."""
    return LEAST_SEEN if settings.prefer == "speed" else LEAST_GAIN


def _without(qparams: QParams) -> QParams:
    """Returns signed qparams for the same range; as they are where 0 is the lowest integer."""
    if qparams.zero_point == qparams.grid.lowest:
        return qparams
    grid = IntegerGrid(bits=qparams.grid.bits, is_signed=True)
    return qparams_for_range(qparams.low, qparams.high, grid, symmetric=True)
