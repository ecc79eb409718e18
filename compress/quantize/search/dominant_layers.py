"""Layers that make most of an output's noise by themselves, and what they bring in float.

Quantizing all layers is the rule, and a search for those that should not be takes longer than
quantizing. A few networks have one layer whose inputs eight bits do not hold, such as sums of
scattered features. It is looked for where an output is poor, and found in few runs: with half of
the layers quantized and those behind them in float, the noise says in which half it rises, and so
on.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx

from compress.head_judge import HeadJudge
from compress.quantize.decisions import Decisions
from compress.quantize.placement import Declined
from compress.quantize.result import CostlyLayers, QuantizeResult
from compress.quantize.search.candidates import Candidate, mean_db
from compress.quantize.search.precision import Clock, PrecisionChoice
from compress.quantize.search.sensitivity import list_measured, pick_measured
from compress.quantize.settings import PREFERENCES
from compress.quantize.work import Work

_log = logging.getLogger(__name__)

POOR_DB = 30.0
"""Below this an output's error is more than 3 % of its signal, and worth looking into."""
DOMINANT_SHARE = 0.5
EVERY = 2
"""Of the samples that measure a matrix one in so many: which half of the layers makes more noise is
seen on few, and the whole network is judged in the end."""
LEAST_GAIN_DB = 2.0
"""What an output must gain by the layer in float, on the samples of the search: quantizing once
more takes a third of the whole time, and layers behind make noise of what the layer spares them."""


def name_dominant(work: Work, decisions: Decisions, result: QuantizeResult) -> QuantizeResult:
    """Returns a poor network with the layers named that make most of the noise of an output.

    Args:
        work: the quantization.
        decisions: for all layers.
        result: what was made of them.
    """
    known_db = result.measured_db
    if not work.settings.looks_into_poor or min(known_db.values(), default=POOR_DB) >= POOR_DB:
        return result
    dominant = find_dominant(work, decisions)
    costly = CostlyLayers(layers=dominant, int8_db=known_db) if dominant else None
    return replace(result, costly=costly)


def time_dominant(
    work: Work, decisions: Decisions, result: QuantizeResult, clock: Clock
) -> QuantizeResult:
    """Times a network, and returns it or the same with its dominant layers in float.

    They stay in float where the outputs have more decibels so, and the network is slower by no more
    than `--prefer quality` allows. Where INT8 is not faster than float, the result only says so.

    Args:
        work: the quantization.
        decisions: for all layers.
        result: of `name_dominant`.
        clock: times networks on the target.
    """
    networks = [work.prepared.write_float(), result.model]
    costly = result.costly
    if costly is None:
        return replace(result, precision=PrecisionChoice.of_all(*clock(networks)))
    network = work.prepared.with_float_nodes(frozenset(costly.layers))
    float_ms, int8_ms, other_ms = clock([*networks, network.write_uncorrected(decisions)])
    all_int8 = PrecisionChoice.of_all(float_ms, int8_ms)
    named = replace(result, precision=all_int8)
    if not all_int8.is_faster or other_ms > PREFERENCES["quality"].limit_ms(int8_ms, float_ms):
        return named
    other = work.finish(network)
    if not other.layers or not _is_better(other.measured_db, costly.int8_db):
        _log.info("in float, %s bring no decibels", ", ".join(costly.layers))
        return replace(named, costly=None)
    costly = replace(costly, float_db=other.measured_db)
    choice = _choose(costly, float_ms, int8_ms, other_ms)
    declined = (item for item in other.declined if item.node not in costly.layers)
    kept = (Declined(node=node, reason=reason) for node, reason in choice.float_nodes.items())
    return replace(other, declined=(*declined, *kept), precision=choice, costly=costly)


def _is_better(one_db: Mapping[str, float], other_db: Mapping[str, float]) -> bool:
    """Returns whether outputs have more decibels on average, and the worst no fewer."""
    is_worst_as_good = min(one_db.values()) >= min(other_db.values())
    return mean_db(one_db) > mean_db(other_db) and is_worst_as_good


def _choose(
    costly: CostlyLayers, float_ms: float, int8_ms: float, other_ms: float
) -> PrecisionChoice:
    """Returns the choice of layers in float, timed beside all INT8."""
    whole = Candidate(float_nodes=frozenset(), latency_ms=int8_ms, head_db=costly.int8_db)
    chosen = Candidate(
        float_nodes=frozenset(costly.layers), latency_ms=other_ms, head_db=costly.float_db
    )
    reasons = {
        node: f"it makes most of the noise of {', '.join(outputs)}"
        for node, outputs in costly.layers.items()
    }
    return PrecisionChoice(
        float_nodes=reasons,
        float_ms=float_ms,
        int8_ms=int8_ms,
        chosen=chosen,
        tried=(whole, chosen),
    )


def find_dominant(work: Work, decisions: Decisions) -> dict[str, dict[str, float]]:
    """Returns the layers that make most of the noise of poor outputs (or parts), with its share.

    Only those that bring an output decibels in float.
    """
    noise = _Beginnings(work, decisions)
    whole = noise.whole
    found: dict[str, dict[str, float]] = {}
    for output, value in whole.items():
        steepest = noise.find_steepest(output) if value > 10 ** (-POOR_DB / 10) else None
        if steepest is not None:
            layer, rise = steepest
            share = rise / noise.peak(output)
            if share > DOMINANT_SHARE:
                found.setdefault(layer, {})[output] = share
    if not found:
        return found
    spared = noise.measure_without(found)
    most = 10 ** (-LEAST_GAIN_DB / 10)
    return {
        layer: shares
        for layer, shares in found.items()
        if any(spared[output] <= most * whole[output] for output in shares)
    }


class _Beginnings:
    """The noise of each output where only the first layers are quantized.

    Nodes that only pass values on, with the scale of what they read, belong to the layer behind.

    Args:
        work: the quantization.
        decisions: for all layers.
    """

    def __init__(self, work: Work, decisions: Decisions) -> None:
        self._prepared, self._decisions = work.prepared, decisions
        graph, model = work.prepared.graph, work.prepared.write_float()
        parts = graph.find_parts()
        measured = list_measured(graph, {name: (name,) for name in graph.results}, parts)
        samples = pick_measured(work.pick_few())[::EVERY]
        self._judge = HeadJudge(model, samples, measured, parts)
        quantized = enumerate(work.prepared.quantized, 1)
        self._ends = [end for end, item in quantized if not item.tied]
        self._known: dict[int, Mapping[str, float]] = {0: dict.fromkeys(measured, 0.0)}

    @property
    def whole(self) -> Mapping[str, float]:
        """The noise by output with all layers quantized."""
        return self._until(len(self._ends))

    def peak(self, output: str) -> float:
        """Returns the most noise of an output that was seen: layers behind may take some away."""
        return max(known[output] for known in self._known.values())

    def measure_without(self, layers: Collection[str]) -> Mapping[str, float]:
        """Returns the noise by output with all other layers quantized, and no bias corrected."""
        network = self._prepared.with_float_nodes(frozenset(layers))
        return self._measure(network.write_uncorrected(self._decisions))

    def find_steepest(self, output: str) -> tuple[str, float] | None:
        """Returns the layer at which most of an output's noise comes in, and that; or None."""
        low, high = 0, len(self._ends)
        least = DOMINANT_SHARE * self.whole[output]
        while (rise := self._rise(output, low, high)) > least:
            if high - low == 1:
                return self._prepared.quantized[self._ends[low] - 1].node, rise
            middle = (low + high) // 2
            if self._rise(output, low, middle) > self._rise(output, middle, high):
                high = middle
            else:
                low = middle
        return None

    def _rise(self, output: str, low: int, high: int) -> float:
        return self._until(high)[output] - self._until(low)[output]

    def _until(self, count: int) -> Mapping[str, float]:
        """Returns the noise by output with the first `count` layers quantized."""
        if count not in self._known:
            self._known[count] = self._measure(self._write(count))
        return self._known[count]

    def _measure(self, network: onnx.ModelProto) -> Mapping[str, float]:
        db = self._judge.measure(network)
        return {name: 10 ** (-value / 10) for name, value in db.items()}

    def _write(self, count: int) -> onnx.ModelProto:
        if count == len(self._ends):
            return self._prepared.write_model(self._decisions)
        return self._prepared.write_beginning(self._decisions, self._ends[count - 1])
