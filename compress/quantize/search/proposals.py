"""Sets of layers to time next: the most quality for the time that may be spent.

A model of what layers cost in float learns from the networks that were timed, and spends the time
that is allowed where it brings most. Costs are also drawn from what the timings leave possible, so
that layers which look dear for want of timings get their turn.
"""

from collections.abc import Mapping
from statistics import median

import numpy as np

from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.candidates import TIMING_TOLERANCE, count_layer_macs, list_edges
from compress.quantize.search.sensitivity import SensitivityMatrix
from compress.quantize.search.time_model import TimeModel
from compress.quantize.settings import Allowance

FOCUSED_ROUNDS, SPREAD_ROUNDS = 5, 3
FOCUSED = ((0.6, False), (0.85, False), (1.0, False), (0.8, True), (1.0, True), (1.0, True))
"""Proposals of a round: the share of the allowed time, and whether the costs are drawn."""
SPREAD = tuple((share, False) for share in (0.06, 0.11, 0.22, 0.39, 0.61, 1.0))
"""The same where contracts may need more, or less, than the allowed time."""
WIDEST = Allowance(saved_share=0.6, slowdown=0.18)
"""The time that contracts may cost."""
MAX_OVERSHOOT = 8.0
"""Where proposals cost more than the model expected, it is given that much less to spend."""

Latencies = Mapping[frozenset[str], float]
Round = tuple[tuple[tuple[float, bool], ...], Allowance]


def list_rounds(allowance: Allowance, *, has_contracts: bool) -> list[Round]:
    """Returns the rounds of proposals for a preference."""
    rounds: list[Round] = [(SPREAD, WIDEST)] * SPREAD_ROUNDS if has_contracts else []
    if allowance != Allowance():
        rounds += [(FOCUSED, allowance)] * (FOCUSED_ROUNDS - len(rounds))
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
        self._worth = matrix.shares()
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
        shares, allowance = wanted
        start = self._find_fastest(latencies)
        allowed_ms = allowance.limit_ms(latencies[start], self._float_ms)
        budget_ms = (allowed_ms - latencies[start]) / self._overshoot
        models = (
            self._model.draw(self._rng) if is_drawn else self._model for _, is_drawn in shares
        )
        proposed = [
            model.spend(self._worth, share * budget_ms, start)
            for model, (share, _) in zip(models, shares, strict=True)
        ]
        self._expected_ms = {kept: self._model.predict_ms(kept) for kept in proposed}
        return proposed

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
