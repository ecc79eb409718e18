"""Sets of layers to time next: the most quality for the time that may be spent.

A model of what layers cost in float learns from the networks that were timed, and spends the time
that is allowed where it brings most. Costs are also drawn from what the timings leave possible, so
that layers which look dear for want of timings get their turn. The last rounds start from the best
sets that were timed: a part of their layers is given back at random and the time spent anew (P.
Shaw, "Using constraint programming and local search methods to solve vehicle routing problems",
1998), which the model foretells better than a set unlike all others.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from statistics import median

import numpy as np

from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.candidates import (
    TIMING_TOLERANCE,
    count_layer_macs,
    gain_db,
    list_edges,
    mean_db,
    predict_db,
)
from compress.quantize.search.sensitivity import SensitivityMatrix
from compress.quantize.search.time_model import TimeModel
from compress.quantize.settings import Allowance

FOCUSED_ROUNDS, SPREAD_ROUNDS, ALTERED_ROUNDS = 5, 3, 3
FOCUSED = ((0.6, False), (0.85, False), (1.0, False), (0.8, True), (1.0, True), (1.0, True))
"""Proposals of a round: the share of the allowed time, and whether the costs are drawn."""
SPREAD = tuple((share, False) for share in (0.06, 0.11, 0.22, 0.39, 0.61, 1.0))
"""The same where contracts may need more, or less, than the allowed time."""
WIDEST = Allowance(saved_share=0.6, slowdown=0.18)
"""The time that contracts may cost."""
ALTERED, GIVEN_BACK, STARTS = 4, 0.3, 2
"""So many sets of a round alter the best ones, of which this share of the layers is given back;
so many are started from."""
NEARLY = 1.005
"""A set this little beyond the limit may be within it the next time."""
MAX_OVERSHOOT = 8.0
"""Where proposals cost more than the model expected, it is given that much less to spend."""

Latencies = Mapping[frozenset[str], float]


@dataclass(frozen=True)
class Round:
    """Which sets to propose next.

    Attributes:
        allowance: the time that they may cost.
        shares: of that time, and whether costs are drawn, a set each; none alters the best sets.
    """

    allowance: Allowance
    shares: tuple[tuple[float, bool], ...] = ()


def list_rounds(allowance: Allowance, *, has_contracts: bool) -> list[Round]:
    """Returns the rounds of proposals for a preference."""
    rounds = [Round(WIDEST, SPREAD)] * SPREAD_ROUNDS if has_contracts else []
    if allowance != Allowance():
        rounds += [Round(allowance, FOCUSED)] * (FOCUSED_ROUNDS - len(rounds))
        rounds += [Round(allowance)] * ALTERED_ROUNDS
    return rounds


class Proposer:
    """Proposes sets round by round, and learns from how long they took.

    Args:
        prepared: the network.
        matrix: what each layer costs each head.
        float_ms: latency of the float network.
        int8_ms: latency of all INT8.
    """

    def __init__(
        self,
        prepared: PreparedNetwork,
        matrix: SensitivityMatrix,
        float_ms: float,
        int8_ms: float,
    ) -> None:
        self._float_ms, self._int8_ms = float_ms, int8_ms
        self._matrix = matrix
        self._worth = partial(gain_db, matrix.head_noise())
        macs, saved_ms = count_layer_macs(prepared, matrix.layers), float_ms - int8_ms
        self._model = TimeModel(matrix.layers, macs, list_edges(prepared), saved_ms)
        self._rng = np.random.default_rng(0)
        self._expected_ms: dict[frozenset[str], float] = {}
        self._overshoot = 1.0

    def propose(self, latencies: Latencies, wanted: Round) -> list[frozenset[str]]:
        """Returns the sets of the next round.

        Args:
            latencies: of all sets that were timed, in ms; the first has no layer in float.
            wanted: one of `list_rounds`.
        """
        self._notice_overshoot(latencies)
        self._model.fit(list(latencies), list(latencies.values()))
        start = self._find_fastest(latencies)
        limit_ms = wanted.allowance.limit_ms(latencies[start], self._float_ms)
        if not wanted.shares:
            return self._alter_best(latencies, limit_ms)
        budget_ms = (limit_ms - latencies[start]) / self._overshoot
        models = (
            self._model.draw(self._rng) if is_drawn else self._model
            for _, is_drawn in wanted.shares
        )
        proposed = [
            model.spend(self._worth, share * budget_ms, start)
            for model, (share, _) in zip(models, wanted.shares, strict=True)
        ]
        self._expected_ms = {kept: self._model.predict_ms(kept) for kept in proposed}
        return proposed

    def _alter_best(self, latencies: Latencies, limit_ms: float) -> list[frozenset[str]]:
        """Returns the best sets within a limit, some of their layers exchanged for others."""
        within = [kept for kept, ms in latencies.items() if ms <= NEARLY * limit_ms]
        within.sort(key=lambda kept: mean_db(predict_db(self._matrix, kept)), reverse=True)
        altered = []
        for best in islice(cycle(within[:STARTS]), ALTERED):
            names = sorted(best)
            count = math.ceil(GIVEN_BACK * len(names))
            back = {names[index] for index in self._rng.permutation(len(names))[:count]}
            rest = best - back
            saved_ms = self._model.predict_ms(best) - self._model.predict_ms(rest)
            budget_ms = limit_ms - latencies[best] + saved_ms
            altered.append(self._model.spend(self._worth, budget_ms, rest))
        self._expected_ms = {}
        return altered

    def _notice_overshoot(self, latencies: Latencies) -> None:
        if not self._expected_ms:
            return
        least_ms = 0.01 * (self._float_ms - self._int8_ms)
        ratios = [
            (latencies[kept] - self._int8_ms) / max(expected_ms, least_ms)
            for kept, expected_ms in self._expected_ms.items()
        ]
        self._overshoot = min(max(self._overshoot * median(ratios), 1.0), MAX_OVERSHOOT)

    def _find_fastest(self, latencies: Latencies) -> frozenset[str]:
        fastest = min(latencies, key=latencies.__getitem__)
        is_faster = latencies[fastest] < self._int8_ms * (1 - TIMING_TOLERANCE)
        return fastest if is_faster else frozenset()
