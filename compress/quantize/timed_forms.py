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

import onnx

from compress.quantize.decisions import Decisions
from compress.quantize.draft import draft_decisions
from compress.quantize.graph import Array
from compress.quantize.placement.costly_zero_points import find_padded_inputs
from compress.quantize.placement.integer_sums import INTEGER_SUMS
from compress.quantize.placement.openvino_forms import find_swishes
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
    sums = _time_sums(network, samples, fastest, clock)
    attention = _time_attention(network, samples, fastest, clock)
    trunks = _time_trunk(network, samples, fastest, clock)
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


def _time_sums(
    network: PreparedNetwork,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    clock: Clock,
) -> dict[str | None, float]:
    """Returns the share of the latency that each way to compute sums takes, the richest first.

    What costs no quality, residual sums, stands for the network without where it is faster.
    """
    if settings.integer_sums is not None:
        return {settings.integer_sums: 1.0}
    kinds = [replace(settings, integer_sums=kind) for kind in (None, *INTEGER_SUMS[1:])]
    timed = _time_placements(network, samples, kinds, clock)
    shares = {item.integer_sums: share for item, share in timed.items()}
    if "blocks" in shares:
        del shares[None if shares["blocks"] < 1 - LEAST_SEEN else "blocks"]
    return shares


def _time_attention(
    network: PreparedNetwork,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    clock: Clock,
) -> dict[bool | None, float]:
    """Returns the share of the latency with attention in float, and in integers."""
    if settings.integer_attention is not None:
        return {settings.integer_attention: 1.0}
    choices = [replace(settings, integer_attention=choice) for choice in (None, True)]
    timed = _time_placements(network, samples, choices, clock)
    return {item.integer_attention: share for item, share in timed.items()}


def _time_trunk(
    network: PreparedNetwork,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    clock: Clock,
) -> dict[bool | None, float]:
    """Returns the share of the latency with sums on a trunk in float, and in integers for speed."""
    if settings.trunk_sums is not None or settings.prefer != "speed":
        return {settings.trunk_sums: 1.0}
    choices = [replace(settings, trunk_sums=choice) for choice in (None, True)]
    timed = _time_placements(network, samples, choices, clock)
    return {item.trunk_sums: share for item, share in timed.items()}


def _time_placements(
    network: PreparedNetwork,
    samples: Sequence[dict[str, Array]],
    choices: Sequence[QuantizeSettings],
    clock: Clock,
) -> dict[QuantizeSettings, float]:
    """Returns the share of the first one's latency that each choice takes; of those alike one."""
    networks: dict[QuantizeSettings, PreparedNetwork] = {}
    for chosen in choices:
        item = replace(network, placement=chosen.placement).with_float_nodes(network.kept)
        if all(item.quantized != known.quantized for known in networks.values()):
            networks[chosen] = item
    if len(networks) == 1:
        return dict.fromkeys(networks, 1.0)
    times = clock(
        [
            item.write_uncorrected(draft_decisions(item, chosen, samples[:1]))
            for chosen, item in networks.items()
        ]
    )
    return {chosen: ms / times[0] for chosen, ms in zip(networks, times, strict=True)}


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
