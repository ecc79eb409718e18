"""Which layers stay in float, by measured time and measured error.

Quantizing a layer saves time and costs quality, neither of which the other layers' shapes tell.
Time is therefore measured on the target, whole networks side by side; quality is added up from
the sensitivity matrix. A few sets of layers are timed first; from them a model learns what each
layer costs in float, and proposes sets that bring the most quality for their time; these are timed
in turn, and the model learns from them. The preference says how much time layers in float may cost.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Self

import onnx

from artifacts.errors import InputError
from compress.quantize.decisions import Decisions
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.candidates import (
    TIMING_TOLERANCE,
    Candidate,
    list_cheap_sets,
    list_ends,
    list_kinds,
    list_meeting_sets,
    list_sensitive_sets,
    predict_db,
)
from compress.quantize.search.contract import Finding
from compress.quantize.search.proposals import Proposer, list_rounds
from compress.quantize.search.sensitivity import SensitivityMatrix
from compress.quantize.settings import PREFERENCES, Allowance

Clock = Callable[[Sequence[onnx.ModelProto]], Sequence[float]]
"""Times networks side by side on the target; returns the latency of each in ms."""

JOINED = 6
"""At most so many of the first sets are joined."""
FINALIST_LIMITS = ((1.02, 1.02, 1.0, 1.0, 0.97), (0.95, 0.92, 0.9, 0.87, 0.85))
"""A set is taken for each of these shares of the limit: timed again, those at it may be beyond. The
second row is for where all of the first are."""
FINAL_TIMINGS = 2
"""The best sets are timed again, so often: the luckiest timing must not decide."""
CHALLENGER_LIMITS = (1.05, 1.03, 1.01, 0.99, 0.97)
"""The same for better sets than the best finalist that were timed but once: one that looked a
little too slow may have been unlucky."""
CHALLENGES = 3
"""At most so many rounds of such sets."""
CHALLENGE_STEP_DB = 0.2
"""What brings less than this is not timed again."""
FRONTIER_STEP_DB = 1.0
"""A slower set that brings less than this is not offered."""


@dataclass(frozen=True, kw_only=True)
class PrecisionChoice:
    """Which layers stay in float, and what was measured for it.

    Attributes:
        float_nodes: names of the layers that stay in float, with the reason.
        float_ms: latency of the float network.
        int8_ms: latency with every layer quantized that can be.
        chosen: the set that was chosen.
        tried: every candidate, in the order of trial.
        findings: what the contracts' heads have in the finished network.
        finalists: the layers in float of those candidates that were timed several times.
    """

    float_nodes: Mapping[str, str]
    float_ms: float
    int8_ms: float
    chosen: Candidate
    tried: tuple[Candidate, ...]
    findings: tuple[Finding, ...] = ()
    finalists: frozenset[frozenset[str]] = frozenset()

    @classmethod
    def of_all(cls, float_ms: float, int8_ms: float) -> Self:
        """Returns the choice of all INT8, which was timed beside the float network."""
        chosen = Candidate(float_nodes=frozenset(), latency_ms=int8_ms)
        return cls(
            float_nodes={}, float_ms=float_ms, int8_ms=int8_ms, chosen=chosen, tried=(chosen,)
        )

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The findings that break their contract."""
        return tuple(finding for finding in self.findings if not finding.is_kept)

    @property
    def is_float(self) -> bool:
        """Whether no quantized network was faster than the float one."""
        return self.chosen.latency_ms >= self.float_ms

    @property
    def is_faster(self) -> bool:
        """Whether it is faster than the float network by more than timings tell apart."""
        return is_faster(self.chosen.latency_ms, self.float_ms)

    @property
    def frontier(self) -> tuple[Candidate, ...]:
        """The tried sets worth a choice, fastest first: each brings more quality than all before.

        All are faster than float; none where quality was not weighed. The chosen one is among them
        whatever the others bring. What was timed but once, and would be the better choice if that
        timing held, was lucky, and is left out; with contracts the choice has other grounds.
        """
        weighed = [item for item in self.tried if item.head_db and not self._was_lucky(item)]
        frontier: list[Candidate] = []
        for item in sorted(weighed, key=lambda item: (item.latency_ms, -item.quality_db)):
            least_db = frontier[-1].quality_db + FRONTIER_STEP_DB if frontier else -math.inf
            is_worth_it = item.quality_db >= least_db or item == self.chosen
            if item.latency_ms < self.float_ms and is_worth_it:
                frontier.append(item)
        return tuple(frontier)

    def _was_lucky(self, item: Candidate) -> bool:
        """Whether a candidate is better and no slower than the chosen one by a single timing."""
        return (
            not self.findings
            and item.float_nodes not in self.finalists
            and item.latency_ms <= self.chosen.latency_ms
            and item.quality_db > self.chosen.quality_db
        )


class PrecisionSearch:
    """The candidates of a network, timed on the target, to choose from.

    Args:
        prepared: the network.
        decisions: qparams and integers of every layer; only their timing matters here.
        clock: measures latencies.
        allowance: the time that layers in float may cost.
        matrix: what each layer costs each head; None if only speed is considered.
        dominant: layers that make most of the noise of a poor output. In float they may take what
            `--prefer quality` allows, as they may without a preference.
        has_contracts: whether more time may be spent than is allowed, to keep contracts.
    """

    def __init__(
        self,
        prepared: PreparedNetwork,
        decisions: Decisions,
        clock: Clock,
        allowance: Allowance,
        matrix: SensitivityMatrix | None = None,
        *,
        dominant: frozenset[str] = frozenset(),
        has_contracts: bool = False,
    ) -> None:
        self._prepared = prepared
        self._decisions = decisions
        self._clock = clock
        self._allowance = allowance
        self._matrix = matrix
        self._dominant = dominant
        self._float_model, self._int8_model = prepared.write_float(), self._write(frozenset())
        self._final_ms: dict[frozenset[str], list[float]] = {}
        self._floats_ms: list[float] = []
        self._latencies: dict[frozenset[str], float] = {}
        first = [*list_cheap_sets(prepared), *list_kinds(prepared)]
        if matrix is not None:
            first += [*list_ends(prepared), *list_sensitive_sets(prepared, matrix), dominant]
        self._latencies = self._time(first, with_float=True)
        self._join_faster()
        if matrix is not None:
            self._propose(matrix, has_contracts=has_contracts)

    @property
    def float_ms(self) -> float:
        """Latency of the float network in ms."""
        return median(self._floats_ms)

    @property
    def tried(self) -> tuple[Candidate, ...]:
        """The candidates in the order of trial; the first has no layer in float."""
        return tuple(
            Candidate(float_nodes=kept, latency_ms=ms, head_db=predict_db(self._matrix, kept))
            for kept, ms in self._latencies.items()
        )

    def choose(self, floors: Mapping[str, float] | None = None) -> PrecisionChoice:
        """Chooses the layers that stay in float.

        Args:
            floors: the lowest SQNR that the matrix may predict, in dB, by head.

        Raises:
            InputError: there is no such head.
        """
        floors = floors or {}
        for head in floors:
            if self._matrix is None or head not in self._matrix.heads:
                known = ", ".join(self._matrix.heads) if self._matrix is not None else "none"
                raise InputError(f"a contract names head '{head}'", f"one of {known}")
        self._time_finalists()
        if floors and self._matrix is not None and not self._is_met(floors):
            self._time_new(list_meeting_sets(self._matrix, floors))
        best = self._best_finalist()
        chosen = best if _meets(best, floors) else _choose_for(floors, self.tried, self.float_ms)
        names = frozenset(item.node for item in self._prepared.quantized)
        if names <= chosen.float_nodes or not is_faster(chosen.latency_ms, self.float_ms):
            chosen = Candidate(float_nodes=names, latency_ms=self.float_ms)
        return PrecisionChoice(
            float_nodes=_reasons(self._prepared, chosen, self._matrix, self.float_ms),
            float_ms=self.float_ms,
            int8_ms=self._latencies[frozenset()],
            chosen=chosen,
            tried=self.tried,
            finalists=frozenset(self._final_ms),
        )

    def _is_met(self, floors: Mapping[str, float]) -> bool:
        """Whether a candidate that is faster than float meets the floors."""
        return any(item.latency_ms < self.float_ms and _meets(item, floors) for item in self.tried)

    def _time(
        self, sets: Iterable[frozenset[str]], *, with_float: bool = False
    ) -> dict[frozenset[str], float]:
        """Returns the latency of all INT8 and of each set in ms, at the speed of the first timing.

        All are timed beside all INT8: the float network, which is larger, is slowed down more by
        what else uses the machine's memory, and would be no measure for them.
        """
        others = [kept for kept in dict.fromkeys(sets) if kept]
        models = [self._int8_model, *([self._float_model] if with_float else [])]
        now_ms, *latencies = self._clock([*models, *map(self._write, others)])
        int8_ms = self._latencies.get(frozenset(), now_ms)
        latencies = [ms * int8_ms / now_ms for ms in latencies]
        if with_float:
            self._floats_ms.append(latencies.pop(0))
        return {frozenset(): int8_ms} | dict(zip(others, latencies, strict=True))

    def _write(self, kept: frozenset[str]) -> onnx.ModelProto:
        """Returns the network as it will be with these layers in float, neighbours included."""
        return self._prepared.with_float_nodes(kept).write_uncorrected(self._decisions)

    def _join_faster(self) -> None:
        """Times what is faster in float, joined: the fastest of these sets first, one by one."""
        int8_ms = self._latencies[frozenset()]
        faster = [kept for kept, ms in self._latencies.items() if ms < int8_ms]
        faster.sort(key=lambda kept: self._latencies[kept])
        joined = list(accumulate(faster[:JOINED], lambda one, other: one | other))[1:]
        self._time_new(joined)

    def _time_new(self, sets: Iterable[frozenset[str]]) -> None:
        """Times what was not yet."""
        new = [kept for kept in sets if kept not in self._latencies]
        if new:
            self._latencies |= self._time(new)

    def _propose(self, matrix: SensitivityMatrix, *, has_contracts: bool) -> None:
        """Times proposals, round by round."""
        int8_ms = self._latencies[frozenset()]
        if self.float_ms - int8_ms <= TIMING_TOLERANCE * int8_ms:
            return
        proposer = Proposer(self._prepared, matrix, self.float_ms, int8_ms)
        for wanted in list_rounds(self._allowance, has_contracts=has_contracts):
            self._time_new(proposer.propose(self._latencies, wanted))

    def _time_finalists(self) -> None:
        """Times the best sets about the limit again, side by side with all INT8.

        Only the new timings count: whatever was picked for a low latency among many was lucky.
        """
        if self._final_ms:
            return
        limit_ms = self._limit_ms(self.tried)
        for shares in FINALIST_LIMITS:
            self._time_again(self.tried, [share * limit_ms for share in shares])
            if self._matrix is None or self._best_finalist().float_nodes:
                break
        for _ in range(CHALLENGES):
            challengers = self._find_challengers()
            if not challengers:
                break
            limit_ms = self._limit_ms(self._list_finalists())
            limits_ms = [share * limit_ms for share in CHALLENGER_LIMITS]
            self._time_again(challengers, limits_ms, self._best_finalist().float_nodes)

    def _find_challengers(self) -> list[Candidate]:
        """Returns what was timed but once and may be better than every finalist."""
        best = self._best_finalist()
        limit_ms = self._limit_ms(self._list_finalists())
        return [
            item
            for item in self.tried
            if item.float_nodes not in self._final_ms
            and item.latency_ms <= limit_ms * max(CHALLENGER_LIMITS)
            and item.quality_db >= best.quality_db + CHALLENGE_STEP_DB
        ]

    def _time_again(
        self,
        among: Sequence[Candidate],
        limits_ms: Iterable[float],
        beside: frozenset[str] = frozenset(),
    ) -> None:
        """Times all INT8, `beside` and the best set within each limit, as finalists."""
        best = sorted(among, key=lambda item: (-item.quality_db, item.latency_ms))
        sets = list(dict.fromkeys([frozenset[str](), beside]))
        for limit_ms in limits_ms:
            within = (item.float_nodes for item in best if item.latency_ms <= limit_ms)
            sets += [next((kept for kept in within if kept not in sets), frozenset[str]())]
        for _ in range(FINAL_TIMINGS):
            for kept, ms in self._time(sets, with_float=True).items():
                self._final_ms.setdefault(kept, []).append(ms)
        self._latencies |= {kept: median(self._final_ms[kept]) for kept in sets}

    def _list_finalists(self) -> list[Candidate]:
        return [item for item in self.tried if item.float_nodes in self._final_ms]

    def _best_finalist(self) -> Candidate:
        """Returns the finalist that the allowance asks for."""
        finalists = self._list_finalists()
        return _choose_best(finalists, self._limit_ms(finalists))

    def _limit_ms(self, tried: Sequence[Candidate]) -> float:
        """Returns the longest latency that may be chosen; equally fast is as good as fastest."""
        fastest_ms = min(item.latency_ms for item in tried)
        allowed_ms = self._allowance.limit_ms(fastest_ms, self.float_ms)
        if self._dominant:
            dominant_ms = self._latencies.get(self._dominant, math.inf)
            if dominant_ms <= PREFERENCES["quality"].limit_ms(fastest_ms, self.float_ms):
                allowed_ms = max(allowed_ms, dominant_ms)
        return max(allowed_ms, fastest_ms * (1 + TIMING_TOLERANCE))


def is_faster(latency_ms: float, float_ms: float) -> bool:
    """Whether a network is faster than the float one by as much as timings tell apart."""
    return latency_ms <= (1 - TIMING_TOLERANCE) * float_ms


def _choose_best(finalists: Sequence[Candidate], limit_ms: float) -> Candidate:
    """Returns the finalist of the highest quality within the limit.

    All INT8 is left only for more quality, or for a latency that is lower by more than chance.
    """
    within = [item for item in finalists if item.latency_ms <= limit_ms]
    best = max(within, key=lambda item: (item.quality_db, -item.latency_ms))
    plain = next((item for item in within if not item.float_nodes), best)
    is_better = best.quality_db > plain.quality_db
    is_faster = best.latency_ms < plain.latency_ms * (1 - TIMING_TOLERANCE)
    return best if is_better or is_faster else plain


def _choose_for(
    floors: Mapping[str, float], tried: Sequence[Candidate], float_ms: float
) -> Candidate:
    """Returns the fastest candidate that meets the floors and is faster than float.

    Where none does, the one that comes nearest.
    """
    faster = [item for item in tried if item.latency_ms < float_ms] or [tried[0]]
    meeting = [item for item in faster if _meets(item, floors)]
    if meeting:
        return min(meeting, key=lambda item: item.latency_ms)
    return max(faster, key=lambda item: min(item.head_db[head] - db for head, db in floors.items()))


def _meets(candidate: Candidate, contracts: Mapping[str, float]) -> bool:
    return all(candidate.head_db[head] >= floor for head, floor in contracts.items())


def _reasons(
    prepared: PreparedNetwork,
    chosen: Candidate,
    matrix: SensitivityMatrix | None,
    float_ms: float,
) -> dict[str, str]:
    names = [item.node for item in prepared.quantized if item.node in chosen.float_nodes]
    if chosen.latency_ms >= float_ms:
        return dict.fromkeys(names, "no INT8 network was faster than float on the target")
    if matrix is None or not chosen.head_db:
        return dict.fromkeys(names, "it does not gain from INT8: little work per activation")
    shares = dict(zip(matrix.layers, matrix.shares(), strict=True))
    return {
        name: f"it costs {100 * shares[name]:.1f} % of the quantization noise"
        if name in shares
        else "it only moves values, between layers in float"
        for name in names
    }
