"""The result that a preference asks for: layers in float, or more zero points, by measurement."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from artifacts.ownership import read_heads
from compress.errors import LatencyError
from compress.head_judge import HeadJudge
from compress.quantize.placement import Declined
from compress.quantize.result import QuantizeResult
from compress.quantize.search.candidates import TIMING_TOLERANCE, mean_db
from compress.quantize.search.contract import Judge, measure_contracts
from compress.quantize.search.dominant_layers import find_dominant
from compress.quantize.search.precision import (
    Clock,
    PrecisionChoice,
    PrecisionSearch,
)
from compress.quantize.search.sensitivity import (
    list_measured,
    measure_layers,
    pick_measured,
    take_worse,
)
from compress.quantize.search.stress import enlarge_quarters
from compress.quantize.settings import Allowance
from compress.quantize.work import Work
from compress.sqnr import EXACT_DB

_log = logging.getLogger(__name__)

CONTRACT_ROUNDS = 4
CONTRACT_STEP_DB = 3.0
"""How much more SQNR is asked of a head whose contract was broken, in each further round."""


def search_precision(
    work: Work, allowance: Allowance, clock: Clock, judge: Judge | None
) -> QuantizeResult:
    """Returns the best network that the search finds, more careful until contracts are kept.

    Raises:
        LatencyError: no network is fast enough.
    """
    contracts = work.settings.contracts
    model = work.prepared.write_float()
    heads = read_heads(model)
    search = _open_search(work, allowance, clock)
    floors = {item.head: item.limit for item in contracts if item.kind == "sqnr"}
    for _ in range(CONTRACT_ROUNDS):
        choice = search.choose(floors)
        _compare_with_limit(choice, allowance.within_ms, has_contracts=bool(contracts))
        if choice.is_float:
            result = _float_result(work, choice)
        else:
            result = work.finish(work.prepared.with_float_nodes(frozenset(choice.float_nodes)))
        findings = measure_contracts(contracts, heads, model, result.model, work.samples, judge)
        choice = replace(choice, findings=findings)
        result = replace(result, precision=choice, declined=_explain(result.declined, choice))
        if choice.is_float or not choice.broken:
            break
        floors = _raise_floors(floors, choice)
        if search.choose(floors).chosen == choice.chosen:
            break
    return result


def take_richer(
    found: QuantizeResult,
    work: Work,
    allowance: Allowance,
    richer: Iterable[Work],
    clock: Clock,
) -> QuantizeResult:
    """Returns the best of the search's result and of all INT8 with more zero points.

    Layers in float cost time as zero points do; which of them brings more quality is measured.
    """
    if found.precision is None:
        return found
    fastest = min(item.latency_ms for item in found.precision.tried)
    share = fastest / found.precision.chosen.latency_ms
    few = work.pick_few()
    model = work.prepared.write_float()
    graph = work.prepared.graph
    parts = graph.find_parts()
    heads = list_measured(graph, read_heads(model), parts)
    judge = HeadJudge(model, [*few, *enlarge_quarters(few)], heads, parts)
    best, best_db = found, mean_db(judge.measure(found.model))
    for other in richer:
        result = other.finish(other.prepared)
        float_ms, found_ms, ms = clock([model, found.model, result.model])
        limit_ms = allowance.limit_ms(share * found_ms, float_ms)
        result_db = mean_db(judge.measure(result.model))
        _log.info("more zero points: %.1f dB instead of %.1f, %.2f ms", result_db, best_db, ms)
        if ms <= limit_ms * (1 + TIMING_TOLERANCE) and result_db > best_db:
            best = replace(result, precision=PrecisionChoice.of_all(float_ms, ms))
            best_db = result_db
    return best


def _open_search(work: Work, allowance: Allowance, clock: Clock) -> PrecisionSearch:
    few = work.pick_few()
    decisions = work.stream(work.prepared, few)
    matrix = None
    if work.settings.weighs_quality or work.settings.contracts:
        measured = pick_measured(few)
        sets = [item for item in (measured, enlarge_quarters(measured)) if item]
        matrix, *unlike = measure_layers(work.prepared, decisions, sets, progress=work.progress)
        for other in unlike:
            matrix = take_worse(matrix, other) if np.isfinite(other.noise).all() else matrix
    settings = work.settings
    is_sought = settings.weighs_quality and settings.looks_into_poor and settings.within_ms is None
    dominant = find_dominant(work, decisions) if is_sought else {}
    return PrecisionSearch(
        *(work.prepared, decisions, clock, allowance, matrix),
        dominant=frozenset(dominant),
        has_contracts=bool(work.settings.contracts),
    )


def _compare_with_limit(
    choice: PrecisionChoice, within_ms: float | None, *, has_contracts: bool
) -> None:
    """Refuses what is slower than asked for; says where the float network is fast enough."""
    if within_ms is None:
        return
    if choice.float_ms <= within_ms:
        _log.warning("the float network takes %.2f ms and is fast enough", choice.float_ms)
    chosen_ms = choice.chosen.latency_ms
    if chosen_ms > within_ms * (1 + TIMING_TOLERANCE):
        found = "that keeps the contracts " if has_contracts else ""
        raise LatencyError(
            f"within_ms is {within_ms:g}, and the fastest network {found}takes {chosen_ms:.3g} ms",
            f"{chosen_ms:.3g} or more",
            f"compress prune --target-ms {within_ms:g} --precision int8 may make it narrow enough",
            fastest_ms=chosen_ms,
        )


def _raise_floors(floors: Mapping[str, float], choice: PrecisionChoice) -> dict[str, float]:
    """Asks for more SQNR of the heads that broke their contract."""
    asked = {item.contract.head: choice.chosen.head_db for item in choice.broken}
    return dict(floors) | {head: db[head] + CONTRACT_STEP_DB for head, db in asked.items()}


def _float_result(work: Work, choice: PrecisionChoice) -> QuantizeResult:
    return QuantizeResult(
        model=work.prepared.write_float(),
        layers=(),
        declined=_explain(work.prepared.declined, choice),
        simplified=work.prepared.simplified,
        outputs_db=dict.fromkeys(work.prepared.graph.results, EXACT_DB),
        settings=work.settings,
        precision=choice,
    )


def _explain(declined: Sequence[Declined], choice: PrecisionChoice) -> tuple[Declined, ...]:
    """Returns the declined nodes, those of the search with its reasons."""
    kept = [item for item in declined if item.node not in choice.float_nodes]
    reasons = choice.float_nodes.items()
    return (*kept, *(Declined(node=node, reason=reason) for node, reason in reasons))
