"""Quantizes an ONNX model: `quantize` takes files, `quantize_model` what was read from them."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from artifacts.array_samples import ArraySamples
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import INPUT_SPEC_KEY, input_tensors, load_onnx, read_metadata
from artifacts.ownership import read_heads
from artifacts.samples import Samples, open_samples, spread_indices
from compress.head_judge import HeadJudge
from compress.progress import Progress
from compress.quantize.decision_log import DecisionLog
from compress.quantize.decisions import Decisions, LayerResult
from compress.quantize.graph import Array
from compress.quantize.memory_estimate import count_walked, estimate_memory
from compress.quantize.placement import Declined
from compress.quantize.prepared import PreparedNetwork, prepare_network
from compress.quantize.search.candidates import Candidate, mean_db
from compress.quantize.search.contract import Judge, check_contracts, measure_contracts
from compress.quantize.search.precision import (
    TIMING_TOLERANCE,
    Clock,
    PrecisionChoice,
    PrecisionSearch,
)
from compress.quantize.search.sensitivity import (
    list_measured,
    measure_layers,
    read_measured_parts,
    take_worse,
)
from compress.quantize.search.stress import enlarge_quarters
from compress.quantize.settings import PREFERENCES, QuantizeSettings
from compress.quantize.streaming import StreamingPass
from compress.quantize.timed_forms import Forms, choose_forms

_log = logging.getLogger(__name__)

CONTRACT_ROUNDS = 4
CONTRACT_STEP_DB = 3.0
"""How much more SQNR is asked of a head whose contract was broken, in each further round."""
SEARCH_SAMPLES = 8
"""Calibration samples that the search for layers in float uses, evenly spaced."""
MATRIX_SAMPLES = 4
"""So many of them, at least, measure the sensitivity matrix."""
MATRIX_VALUES = 4_000_000
"""Input values that are enough for the matrix: large pictures have more places to average over."""


@dataclass(frozen=True, kw_only=True)
class QuantizeResult:
    """A quantized model and what was done to it.

    Attributes:
        model: with Q/DQ pairs and integer weights, same inputs and outputs as the float one.
        layers: one entry per quantized node, in topological order.
        declined: nodes that were looked at and stay in float, with the reason.
        simplified: what was folded before, a line each.
        outputs_db: SQNR of each output in dB, on the samples that the streaming pass walked with.
        settings: those given, with what a measurement decided about forms (`timed_forms`).
        precision: which layers stay in float for quality or speed, and the measured times; None
            where nothing was timed.
    """

    model: onnx.ModelProto
    layers: tuple[LayerResult, ...]
    declined: tuple[Declined, ...]
    simplified: tuple[str, ...]
    outputs_db: dict[str, float]
    settings: QuantizeSettings
    precision: PrecisionChoice | None = None


def quantize(
    model: onnx.ModelProto | Path | str,
    data: Sequence[dict[str, Array]] | Path | str,
    settings: QuantizeSettings | None = None,
    *,
    input_spec: InputSpec | None = None,
    limit: int | None = 32,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> QuantizeResult:
    """Quantizes a float network: files in, or objects.

    Args:
        model: a network, or the path of an `.onnx` file.
        data: a folder of pictures, an `.npz` with one array per input, or a sequence of
            dictionaries of input arrays (batch axis included).
        settings: how; the defaults suit TensorRT.
        input_spec: how pixels become the input; None for what the network's metadata says, and
            RGB scaled by 1/255 where it says nothing.
        limit: samples to use of a folder or `.npz`, evenly spread; None for all.
        progress: is told (what, done, total).
        clock: times networks on the target (`framefit.network_clock.NetworkClock`), see
            `quantize_model`.

    Returns:
        the quantized model with its report; `artifacts.onnx_file.save_onnx` writes it.

    Raises:
        InputError: the model, the data or a setting is not usable.
    """
    loaded = model if isinstance(model, onnx.ModelProto) else load_onnx(Path(model))
    if isinstance(data, str | Path):
        stored = read_metadata(loaded).get(INPUT_SPEC_KEY)
        spec = input_spec or (InputSpec.from_json(stored) if stored else InputSpec())
        samples: Samples = open_samples(data, input_tensors(loaded), spec, limit=limit)
    else:
        samples = ArraySamples(data, input_tensors(loaded))
    return quantize_model(loaded, samples, settings, progress, clock)


def quantize_model(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    log_folder: Path | None = None,
    judge: Judge | None = None,
) -> QuantizeResult:
    """Quantizes a float model with calibration samples.

    Args:
        model: checked, of static shapes and opset 13 or newer (`artifacts.onnx_file.load_onnx`);
            it is not changed.
        samples: one dictionary of input arrays (batch axis included) per sample.
        settings: how; the defaults suit TensorRT.
        progress: is told (what, done, total).
        clock: times networks on the target; `settings.prefer` needs it. Without `prefer` the
            result is timed, and layers stay in float only where it is not faster than float.
        log_folder: decisions are kept here, so that a run that was killed goes on where it
            stopped. The caller names it after model, samples and settings, and removes it once
            the result is stored.
        judge: measures by how much each head's metric is worse than in float, for contracts on it.

    Returns:
        the quantized model with its report.

    Raises:
        AlreadyQuantizedError: the model holds integer operators.
        CalibrationError: there are no samples, or an activation is NaN or infinite.
        InputError: nothing in it can be quantized, or an operator cannot be run.
    """
    settings = settings or QuantizeSettings()
    if settings.prefer is not None and clock is None:
        raise InputError(f"prefer is '{settings.prefer}' and there is no clock to time with")
    check_contracts(settings.contracts, read_heads(model), judge)
    log = DecisionLog(log_folder)
    forms = Forms(settings) if clock is None else choose_forms(model, samples, settings, clock)
    work = _Work.begin(model, samples, forms.chosen, progress, log)
    if settings.prefer is not None and clock is not None:
        found = _search_precision(work, settings.prefer, clock, judge)
        if settings.contracts or not found.layers:
            return found
        richer = (_Work.begin(model, samples, item, progress, log) for item in forms.richer)
        return _take_richer(found, work, richer, clock)
    result = work.finish(work.prepared)
    if clock is None:
        return result
    choice = _time_whole(work.prepared, result, clock)
    if not choice.is_float:
        return replace(result, precision=choice)
    _log.warning("INT8 is not faster than float here: what gains nothing from it stays in float")
    return _search_precision(work, "speed", clock, judge)


@dataclass(frozen=True)
class _Work:
    """What every step of one quantization needs."""

    prepared: PreparedNetwork
    samples: Sequence[dict[str, Array]]
    settings: QuantizeSettings
    progress: Progress | None
    log: DecisionLog

    @classmethod
    def begin(
        cls,
        model: onnx.ModelProto,
        samples: Sequence[dict[str, Array]],
        settings: QuantizeSettings,
        progress: Progress | None,
        log: DecisionLog,
    ) -> "_Work":
        """Prepares a network; networks with other zero points have other decisions."""
        if settings.symmetric is not None:
            log = log.branch("symmetric" if settings.symmetric else "asymmetric")
        elif settings.spares_padded is not None:
            log = log.branch("spared")
        prepared = prepare_network(model, samples, settings, progress)
        return cls(prepared, samples, settings, progress, log)

    def finish(self, network: PreparedNetwork) -> QuantizeResult:
        """Returns the result of quantizing what `network` leaves to quantize."""
        log = self.log.with_float_nodes(network.kept)
        decisions = self.stream(network, self.samples, log)
        return QuantizeResult(
            model=network.write_model(decisions),
            layers=tuple(decisions.layers),
            declined=network.declined,
            simplified=network.simplified,
            outputs_db=decisions.outputs_db,
            settings=self.settings,
        )

    def pick_few(self) -> list[dict[str, Array]]:
        """Returns the samples of the search."""
        indices = spread_indices(len(self.samples), SEARCH_SAMPLES)
        return [self.samples[index] for index in indices]

    def stream(
        self,
        network: PreparedNetwork,
        samples: Sequence[dict[str, Array]],
        log: DecisionLog | None = None,
    ) -> Decisions:
        """Returns the decisions of one pass over samples."""
        walked = count_walked(network, self.settings, len(samples))
        estimate = estimate_memory(network, walked, self.settings.memory_cap_bytes)
        estimate.require_disk()
        _log.info("%d samples, %d at once, need %s", len(samples), walked, estimate)
        return StreamingPass(network, self.settings, log).run(samples, self.progress)


def _search_precision(
    work: _Work, prefer: str, clock: Clock, judge: Judge | None
) -> QuantizeResult:
    """Returns the best network that the search finds, more careful until contracts are kept."""
    contracts = work.settings.contracts
    model = work.prepared.write_float()
    heads = read_heads(model)
    search = _open_search(work, clock)
    floors = {item.head: item.limit for item in contracts if item.kind == "sqnr"}
    for _ in range(CONTRACT_ROUNDS):
        choice = search.choose(prefer, floors)
        if choice.is_float:
            return _float_result(work, choice)
        result = work.finish(work.prepared.with_float_nodes(frozenset(choice.float_nodes)))
        findings = measure_contracts(contracts, heads, model, result.model, work.samples, judge)
        choice = replace(choice, findings=findings)
        result = replace(result, precision=choice, declined=_explain(result.declined, choice))
        floors = _raise_floors(floors, choice)
        if not choice.broken or search.choose(prefer, floors).chosen == choice.chosen:
            break
    return result


def _take_richer(
    found: QuantizeResult, work: _Work, richer: Iterable[_Work], clock: Clock
) -> QuantizeResult:
    """Returns the best of the search's result and of all INT8 with more zero points.

    Layers in float cost time as zero points do; which of them brings more quality is measured.
    """
    if found.precision is None or work.settings.prefer is None:
        return found
    allowance = PREFERENCES[work.settings.prefer]
    fastest = min(item.latency_ms for item in found.precision.tried)
    share = fastest / found.precision.chosen.latency_ms
    few = work.pick_few()
    model = work.prepared.write_float()
    graph = work.prepared.graph
    heads = list_measured(graph, read_heads(model), read_measured_parts(graph, model))
    judge = HeadJudge(model, [*few, *enlarge_quarters(few)], heads)
    best, best_db = found, mean_db(judge.measure(found.model))
    for other in richer:
        result = other.finish(other.prepared)
        float_ms, found_ms, ms = clock([model, found.model, result.model])
        limit_ms = allowance.limit_ms(share * found_ms, float_ms)
        result_db = mean_db(judge.measure(result.model))
        _log.info("more zero points: %.1f dB instead of %.1f, %.2f ms", result_db, best_db, ms)
        if ms <= limit_ms * (1 + TIMING_TOLERANCE) and result_db > best_db:
            best = replace(result, precision=_choose_all(float_ms, ms))
            best_db = result_db
    return best


def _open_search(work: _Work, clock: Clock) -> PrecisionSearch:
    few = work.pick_few()
    decisions = work.stream(work.prepared, few)
    matrix = None
    if work.settings.weighs_quality or work.settings.contracts:
        measured = [few[index] for index in spread_indices(len(few), _count_measured(few))]
        sets = [item for item in (measured, enlarge_quarters(measured)) if item]
        matrix, *unlike = measure_layers(work.prepared, decisions, sets, progress=work.progress)
        for other in unlike:
            matrix = take_worse(matrix, other) if np.isfinite(other.noise).all() else matrix
    return PrecisionSearch(work.prepared, decisions, clock, matrix)


def _count_measured(samples: Sequence[dict[str, Array]]) -> int:
    values = sum(array.size for array in samples[0].values())
    return min(len(samples), max(MATRIX_SAMPLES, MATRIX_VALUES // values))


def _time_whole(prepared: PreparedNetwork, result: QuantizeResult, clock: Clock) -> PrecisionChoice:
    """Returns the latencies of the float network and of the result, as a choice of all INT8."""
    return _choose_all(*clock([prepared.write_float(), result.model]))


def _choose_all(float_ms: float, int8_ms: float) -> PrecisionChoice:
    """Returns the choice of all INT8, which was timed beside the float network."""
    chosen = Candidate(float_nodes=frozenset(), latency_ms=int8_ms)
    return PrecisionChoice(
        float_nodes={}, float_ms=float_ms, int8_ms=int8_ms, chosen=chosen, tried=(chosen,)
    )


def _raise_floors(floors: Mapping[str, float], choice: PrecisionChoice) -> dict[str, float]:
    """Asks for more SQNR of the heads that broke their contract."""
    asked = {item.contract.head: choice.chosen.head_db for item in choice.broken}
    return dict(floors) | {head: db[head] + CONTRACT_STEP_DB for head, db in asked.items()}


def _float_result(work: _Work, choice: PrecisionChoice) -> QuantizeResult:
    return QuantizeResult(
        model=work.prepared.write_float(),
        layers=(),
        declined=_explain(work.prepared.declined, choice),
        simplified=work.prepared.simplified,
        outputs_db={},
        settings=work.settings,
        precision=choice,
    )


def _explain(declined: Sequence[Declined], choice: PrecisionChoice) -> tuple[Declined, ...]:
    """Returns the declined nodes, those of the search with its reasons."""
    kept = [item for item in declined if item.node not in choice.float_nodes]
    reasons = choice.float_nodes.items()
    return (*kept, *(Declined(node=node, reason=reason) for node, reason in reasons))
