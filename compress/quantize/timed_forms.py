"""Forms of a network that only a measurement on the target can choose between.

Zero points: with one, a tensor that is seldom negative (SiLU, HardSwish) uses the whole grid, up to
a bit more than without. What that costs depends on the machine: with OpenVINO's kernels for AMX all
of YOLOv8n takes 1.37 times as long, with those for VNNI the same (`benchmarks/zero_points.py`).
Most of it is lost in padded Convs, so that the rest may keep its zero points.

Sums of integers: see `compress.quantize.placement.integer_sums` and `integer_gates`. SiLU with
tanh: see `compress.quantize.placement.openvino_forms`. Layers at the border to float, on
onnxruntime: see `compress.quantize.timed_borders`. Attention in integers takes 0.83 times as
long in a ViT of 224x224, and as long as in float in a network of convolutions with one attention.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx

from compress.quantize.decisions import Decisions
from compress.quantize.draft import draft_decisions
from compress.quantize.graph import Array
from compress.quantize.placement.integer_gates import adds_gated
from compress.quantize.placement.integer_sums import INTEGER_SUMS
from compress.quantize.placement.openvino_forms import find_swishes
from compress.quantize.placement.padded_convs import find_padded_inputs
from compress.quantize.prepare import prepare_network
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.qparams import IntegerGrid, QParams, qparams_for_range
from compress.quantize.search.precision import Clock
from compress.quantize.settings import QuantizeSettings
from compress.quantize.tied_scales import TiedScales
from compress.quantize.timed_borders import write_borders

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Forms:
    """What was measured of a network's forms.

    Attributes:
        chosen: the settings with the form that was chosen for its latency.
        richer: the same with more zero points, where the preference would pay for their time.
        slowdown: the share by which the chosen form is slower than the fastest.
    """

    chosen: QuantizeSettings
    richer: tuple[QuantizeSettings, ...] = ()
    slowdown: float = 0.0


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
    All forms are timed beside that with all zero points. Only where much is saved without these,
    so is the form that keeps some of them, and what the others save there.

    Args:
        model: as for `quantize_model`.
        samples: its calibration samples.
        settings: how to quantize; chosen as they are for targets that leave no choice.
        clock: measures latencies on the target.
    """
    if settings.target == "onnxruntime":
        return _choose(settings, _time(write_borders(model, samples, settings), clock))
    is_open = None in (
        *(settings.symmetric, settings.swish_by_tanh),
        *(settings.integer_sums, settings.integer_attention, settings.trunk_sums),
    )
    if settings.target != "openvino" or not is_open:
        return Forms(settings)
    drafts = _Drafts(prepare_network(model, samples[:1], settings, is_draft=True), samples[:1])
    others = drafts.list_others(settings)
    if not drafts.may_gain(settings, others):
        return Forms(settings)
    written = drafts.write_points(settings)
    beside, times = settings, _time(written | drafts.write_others(others), clock)
    points = _choose_writing(times, list(written))
    fullest, fastest = next(iter(points)), min(points, key=lambda item: points[item])
    if points[fastest] <= (1 - _least_gain(settings)) * points[fullest]:
        some = drafts.write_spared(fastest)
        beside = fastest
        others = drafts.list_others(fastest)
        times = _time({fastest: written[fastest]} | some | drafts.write_others(others), clock)
        ratio = points[fastest] / times[fastest]
        between = {item: ratio * times[item] for item in some}
        points = {fullest: points[fullest]} | between | {fastest: points[fastest]}
    shares = _find_shares(times, beside)
    return _choose(
        settings,
        {
            replace(item, integer_sums=kind, integer_attention=in_integers, trunk_sums=rounded): ms
            * sum_share
            * attention_share
            * trunk_share
            for item, ms in points.items()
            for kind, sum_share in _drop_one_sum(shares["integer_sums"]).items()
            for in_integers, attention_share in shares["integer_attention"].items()
            for rounded, trunk_share in shares["trunk_sums"].items()
        },
    )


class _Drafts:
    """The forms of a network by the ranges of one sample, each with the settings that ask for it.

    Args:
        network: in the form that is the richest.
        samples: for the ranges.
    """

    def __init__(self, network: PreparedNetwork, samples: Sequence[dict[str, Array]]) -> None:
        self._network, self._samples = network, samples
        layers = {item.node for item in network.quantized}
        self._has_swish = bool(find_swishes(network.graph, layers))

    def may_gain(
        self, settings: QuantizeSettings, others: Mapping[QuantizeSettings, PreparedNetwork]
    ) -> bool:
        """Whether a form that is open may save enough to be chosen.

        Gated tensors hardly do where no sum is made of them, and are not timed for that alone.
        """
        if settings.symmetric is None or self._may_write_swish(settings):
            return True
        is_for_gates = all(item.integer_sums == "gates" for item in others)
        may_save = not is_for_gates or settings.is_pressed or adds_gated(self._network.graph)
        return bool(others) and may_save

    def write_points(self, settings: QuantizeSettings) -> dict[QuantizeSettings, onnx.ModelProto]:
        """Returns the network with zero points and without, SiLU written in each way."""
        decisions = self._decide(self._network, settings)
        found = {settings: decisions}
        none = _without_points(decisions)
        if settings.symmetric is None and none.activations != decisions.activations:
            found[replace(settings, symmetric=True)] = none
        if self._may_write_swish(settings):
            found |= {replace(item, swish_by_tanh=True): known for item, known in found.items()}
        return {item: self._write(item, known) for item, known in found.items()}

    def write_spared(self, settings: QuantizeSettings) -> dict[QuantizeSettings, onnx.ModelProto]:
        """Returns the network with the zero points that no padded Conv reads, if that is another.

        Args:
            settings: without zero points.
        """
        some = replace(settings, symmetric=None, spares_padded=True)
        full = self._decide(self._network, some)
        none = _without_points(full).activations
        graph = self._network.graph
        tied, padded = TiedScales(graph, self._network.quantized), find_padded_inputs(graph)
        spared = {
            name: (none if padded & tied.group(name) else full.activations)[name] for name in none
        }
        if spared in (full.activations, none):
            return {}
        return {some: self._write(some, replace(full, activations=spared))}

    def write_others(
        self, others: Mapping[QuantizeSettings, PreparedNetwork]
    ) -> dict[QuantizeSettings, onnx.ModelProto]:
        """Returns the network in each form of `list_others`."""
        return {
            item: network.write_uncorrected(self._decide(network, item))
            for item, network in others.items()
        }

    def list_others(self, settings: QuantizeSettings) -> dict[QuantizeSettings, PreparedNetwork]:
        """Returns the network placed for each other choice that the settings leave open.

        Of choices that quantize the same nodes the first stands for all.
        """
        found = {}
        for name, choices in _list_choices(settings).items():
            known = [self._network.quantized]
            for choice in choices:
                item = replace(settings, **{name: choice})
                network = replace(self._network, placement=item.placement)
                network = network.with_float_nodes(network.kept)
                if network.quantized not in known:
                    known.append(network.quantized)
                    found[item] = network
        return found

    def _may_write_swish(self, settings: QuantizeSettings) -> bool:
        return self._has_swish and settings.swish_by_tanh is None

    def _decide(self, network: PreparedNetwork, settings: QuantizeSettings) -> Decisions:
        return draft_decisions(network, settings, self._samples)

    def _write(self, settings: QuantizeSettings, decisions: Decisions) -> onnx.ModelProto:
        network = replace(self._network, placement=settings.placement)
        return network.write_uncorrected(decisions)


def _list_choices(settings: QuantizeSettings) -> dict[str, tuple[Any, ...]]:
    """Returns the choices that may be faster than the settings' own, by setting, richest first.

    Products of two activations overflow in 16 bits, whatever the weights are.
    """
    choices: dict[str, tuple[Any, ...]] = {
        "integer_sums": INTEGER_SUMS[1:],
        "integer_attention": () if settings.is_for_16_bits else (True,),
        "trunk_sums": (True,) if settings.prefer == "speed" else (),
    }
    return {name: more for name, more in choices.items() if getattr(settings, name) is None}


def _time(
    models: Mapping[QuantizeSettings, onnx.ModelProto], clock: Clock
) -> dict[QuantizeSettings, float]:
    """Returns the latencies in ms; a single form is not timed: it takes 1."""
    if len(models) == 1:
        return dict.fromkeys(models, 1.0)
    return dict(zip(models, clock(list(models.values())), strict=True))


def _choose_writing(
    times: Mapping[QuantizeSettings, float], written: Sequence[QuantizeSettings]
) -> dict[QuantizeSettings, float]:
    """Returns the latencies with zero points and without, SiLU written as is faster."""
    found = {}
    for item in written:
        if item.swish_by_tanh == written[0].swish_by_tanh:
            by_tanh = replace(item, swish_by_tanh=True)
            is_faster = times.get(by_tanh, math.inf) < (1 - LEAST_SEEN) * times[item]
            chosen = by_tanh if is_faster else item
            found[chosen] = times[chosen]
    return found


def _find_shares(
    times: Mapping[QuantizeSettings, float], beside: QuantizeSettings
) -> dict[str, dict[Any, float]]:
    """Returns the share of the latency of `beside` that each choice takes, by setting."""
    shares = {}
    for name in ("integer_sums", "integer_attention", "trunk_sums"):
        choices = (getattr(beside, name), *_list_choices(beside).get(name, ()))
        timed = {choice: replace(beside, **{name: choice}) for choice in choices}
        shares[name] = {
            choice: times[item] / times[beside] for choice, item in timed.items() if item in times
        }
    return shares


def _drop_one_sum(shares: dict[str | None, float]) -> dict[str | None, float]:
    """Lets residual sums, which cost no quality, stand for none where they save time."""
    if "blocks" not in shares:
        return shares
    dropped = None if shares["blocks"] < 1 - LEAST_SEEN else "blocks"
    return {kind: share for kind, share in shares.items() if kind != dropped}


def _without_points(decisions: Decisions) -> Decisions:
    """Returns decisions in which activations that may be negative have signed integers."""
    activations = {name: _without(qparams) for name, qparams in decisions.activations.items()}
    return replace(decisions, activations=activations)


def _choose(settings: QuantizeSettings, times: Mapping[QuantizeSettings, float]) -> Forms:
    """Returns the richest form than which no other is much faster.

    Args:
        settings: what was asked for.
        times: latencies, the richest form first.
    """
    fastest_ms = min(times.values())
    least_ms = fastest_ms / (1 - _least_gain(settings))
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
    if chosen.integer_borders != settings.integer_borders:
        _log.info("layers at the border to float compute in integers, which is faster here")
    slowdown = settings.allowance.slowdown if settings.allowance is not None else 0.0
    allowed_ms = (1 + slowdown) * fastest_ms
    more = list(times)[: list(times).index(chosen)]
    richer = tuple(item for item in more if times[item] <= allowed_ms)
    return Forms(chosen, richer, slowdown=times[chosen] / fastest_ms - 1)


def _least_gain(settings: QuantizeSettings) -> float:
    """Returns the share of the latency that a form must save which costs quality."""
    return LEAST_SEEN if settings.is_pressed else LEAST_GAIN


def _without(qparams: QParams) -> QParams:
    """Returns signed qparams for the same range; as they are where 0 is the lowest integer."""
    if qparams.zero_point == qparams.grid.lowest:
        return qparams
    grid = IntegerGrid(bits=qparams.grid.bits, is_signed=True)
    return qparams_for_range(qparams.low, qparams.high, grid, symmetric=True)
