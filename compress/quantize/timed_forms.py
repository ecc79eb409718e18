"""Forms of a network that only a measurement on the target can choose between.

Zero points: with one, a tensor that is seldom negative (SiLU, HardSwish) uses the whole grid, up to
a bit more than without. What that costs depends on the machine: with OpenVINO's kernels for AMX all
of YOLOv8n takes 1.37 times as long, with those for VNNI the same (`benchmarks/zero_points.py`).
Most of it is lost in padded Convs, so that the rest may keep its zero points.

Sums of integers: see `compress.quantize.placement.integer_sums` and `integer_gates`. SiLU with
tanh: see `compress.quantize.placement.openvino_forms`. Attention in integers takes 0.83 times as
long in a ViT of 224x224, and as long as in float in a network of convolutions with one attention.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import onnx

from compress.quantize.decisions import Decisions
from compress.quantize.draft import draft_decisions
from compress.quantize.graph import Array
from compress.quantize.placement.integer_sums import INTEGER_SUMS
from compress.quantize.placement.openvino_forms import find_swishes
from compress.quantize.placement.padded_convs import find_padded_inputs
from compress.quantize.prepared import PreparedNetwork, prepare_network
from compress.quantize.qparams import IntegerGrid, QParams, qparams_for_range
from compress.quantize.search.precision import Clock
from compress.quantize.settings import QuantizeSettings
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
    What sums and attention save is measured once, in the fastest of the other forms.

    Args:
        model: as for `quantize_model`.
        samples: its calibration samples.
        settings: how to quantize; chosen as they are for targets that leave no choice.
        clock: measures latencies on the target.
    """
    is_open = None in (
        *(settings.symmetric, settings.swish_by_tanh),
        *(settings.integer_sums, settings.integer_attention, settings.trunk_sums),
    )
    if settings.target != "openvino" or not is_open:
        return Forms(settings)
    network = prepare_network(model, samples[:1], settings, is_draft=True)
    points_ms = _time_points(network, samples, settings, clock)
    fastest = min(points_ms, key=lambda item: points_ms[item])
    time_choices = partial(_time_choices, network, samples, fastest, clock)
    sums = _drop_one_sum(time_choices("integer_sums", (None, *INTEGER_SUMS[1:])))
    attention = time_choices("integer_attention", (None, True))
    trunks = time_choices("trunk_sums", (None, True) if settings.prefer == "speed" else (None,))
    return _choose(
        settings,
        {
            replace(item, integer_sums=kind, integer_attention=in_integers, trunk_sums=rounded): ms
            * sum_share
            * attention_share
            * trunk_share
            for item, ms in points_ms.items()
            for kind, sum_share in sums.items()
            for in_integers, attention_share in attention.items()
            for rounded, trunk_share in trunks.items()
        },
    )


def _time_points(
    network: PreparedNetwork,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    clock: Clock,
) -> dict[QuantizeSettings, float]:
    """Returns the latencies with more and fewer zero points, most first, SiLU written as is faster.

    A single form is not timed: it takes 1.
    """
    layers = {item.node for item in network.quantized}
    has_swish = settings.swish_by_tanh is None and bool(find_swishes(network.graph, layers))
    if settings.symmetric is not None and not has_swish:
        return {settings: 1.0}
    decisions = draft_decisions(network, settings, samples[:1])
    choices = [(settings, decisions)]
    if settings.symmetric is None:
        choices += _without_zero_points(network, settings, decisions)
    count = len(choices)
    if has_swish:
        choices += [(replace(chosen, swish_by_tanh=True), decided) for chosen, decided in choices]
    if len(choices) == 1:
        return {settings: 1.0}
    times = clock(
        [
            replace(network, placement=chosen.placement).write_uncorrected(decided)
            for chosen, decided in choices
        ]
    )
    timed = list(zip((chosen for chosen, _ in choices), times, strict=True))
    found = {}
    for index, (chosen, ms) in enumerate(timed[:count]):
        by_tanh, tanh_ms = timed[count + index] if has_swish else (chosen, ms)
        is_faster = tanh_ms < (1 - LEAST_SEEN) * ms
        found[by_tanh if is_faster else chosen] = tanh_ms if is_faster else ms
    return found


def _time_choices(
    network: PreparedNetwork,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    clock: Clock,
    name: str,
    choices: Sequence[Any],
) -> dict[Any, float]:
    """Returns the share of the latency that each choice for a setting takes, the richest first.

    Of choices that quantize the same nodes the first stands for all.

    Args:
        network: a draft in the other forms.
        samples: for the ranges.
        settings: those of the other forms; what they say is not timed.
        clock: measures latencies on the target.
        name: of the setting.
        choices: for it, the richest first; the others' latencies are shares of its.
    """
    given = getattr(settings, name)
    networks: dict[Any, PreparedNetwork] = {}
    for choice in choices if given is None else (given,):
        placement = replace(settings, **{name: choice}).placement
        item = replace(network, placement=placement).with_float_nodes(network.kept)
        if all(item.quantized != known.quantized for known in networks.values()):
            networks[choice] = item
    if len(networks) == 1:
        return dict.fromkeys(networks, 1.0)
    times = clock(
        [
            item.write_uncorrected(draft_decisions(item, settings, samples[:1]))
            for item in networks.values()
        ]
    )
    return {choice: ms / times[0] for choice, ms in zip(networks, times, strict=True)}


def _drop_one_sum(shares: dict[str | None, float]) -> dict[str | None, float]:
    """Lets residual sums, which cost no quality, stand for none where they save time."""
    if "blocks" not in shares:
        return shares
    dropped = None if shares["blocks"] < 1 - LEAST_SEEN else "blocks"
    return {kind: share for kind, share in shares.items() if kind != dropped}


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


def _choose(settings: QuantizeSettings, times: Mapping[QuantizeSettings, float]) -> Forms:
    """Returns the richest form than which no other is much faster.

    Args:
        settings: what was asked for.
        times: latencies, the richest form first.
    """
    least_ms = min(times.values()) / (1 - _least_gain(settings))
    chosen = next(item for item, ms in times.items() if ms <= least_ms)
    if chosen.symmetric != settings.symmetric:
        _log.info("activations do without zero points, which make this network slower here")
    if chosen.spares_padded != settings.spares_padded:
        _log.info("what padded Convs read has no zero points, which make this network slower here")
    if chosen.swish_by_tanh != settings.swish_by_tanh:
        _log.info("SiLU is written with tanh, with which this network is faster here")
    if chosen.integer_sums != settings.integer_sums:
        _log.info("sums are rounded (%s), which is faster here", chosen.integer_sums)
    if chosen.integer_attention != settings.integer_attention:
        _log.info("attention is computed in integers, which is faster here")
    if chosen.trunk_sums != settings.trunk_sums:
        _log.info("sums on the trunk are computed in integers, which is faster here")
    slowdown = settings.allowance.slowdown if settings.allowance is not None else 0.0
    allowed_ms = (1 + slowdown) * times[chosen]
    more = list(times)[: list(times).index(chosen)]
    return Forms(chosen, tuple(item for item in more if times[item] <= allowed_ms))


def _least_gain(settings: QuantizeSettings) -> float:
    """Returns the share of the latency that a form must save which costs quality."""
    is_pressed = settings.prefer == "speed" or settings.within_ms is not None
    return LEAST_SEEN if is_pressed else LEAST_GAIN


def _without(qparams: QParams) -> QParams:
    """Returns signed qparams for the same range; as they are where 0 is the lowest integer."""
    if qparams.zero_point == qparams.grid.lowest:
        return qparams
    grid = IntegerGrid(bits=qparams.grid.bits, is_signed=True)
    return qparams_for_range(qparams.low, qparams.high, grid, symmetric=True)
