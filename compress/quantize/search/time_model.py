"""What keeping each layer in float costs in time, estimated from whole networks that were timed.

A layer alone cannot be timed inside a network that a runtime fuses. Whole networks can, and each
says something about the layers by which it differs from the INT8 one. With fewer timings than
layers, Bayesian linear regression fills in what is expected: the time that INT8 saves is spread
over the layers by their multiply-accumulates, until the timings say otherwise. (C. Bishop, "Pattern
Recognition and Machine Learning", 2006, section 3.3.)
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TIMING_NOISE = 0.01
"""Standard deviation of one network's timing, as a share of the latency."""

Sets = Sequence[frozenset[str]]


class TimeModel:
    """The time that each layer costs in float, beyond what it costs in INT8.

    Args:
        layers: names of the layers.
        macs: [layers], multiply-accumulates, from shapes.
        saved_ms: by how much the INT8 network is faster than the float one.
    """

    def __init__(self, layers: Sequence[str], macs: NDArray[np.float64], saved_ms: float) -> None:
        self._rows = {name: row for row, name in enumerate(layers)}
        shares = macs / macs.sum() if macs.sum() > 0 else np.full(len(layers), 1 / len(layers))
        self._expected = shares * saved_ms
        self._deviation = 0.5 * (np.abs(self._expected) + abs(saved_ms) / len(layers))
        self.costs_ms = self._expected

    def fit(self, sets: Sets, latencies_ms: Sequence[float]) -> None:
        """Estimates `costs_ms`, [layers] in ms, from timed networks.

        Args:
            sets: the layers that each network keeps in float; the first keeps none.
            latencies_ms: of those networks.
        """
        design = np.zeros((len(sets) - 1, len(self._rows)))
        for row, kept in enumerate(sets[1:]):
            design[row, [self._rows[name] for name in kept if name in self._rows]] = 1.0
        int8_ms, *others = latencies_ms
        noise = np.square(TIMING_NOISE * int8_ms)
        prior = np.square(self._deviation)
        covariance = (design * prior) @ design.T + noise * (np.eye(len(others)) + 1.0)
        residual = np.array(others) - int8_ms - design @ self._expected
        gain = (design * prior).T @ np.linalg.solve(covariance, residual)
        self.costs_ms = self._expected + gain

    def spend(self, worth: NDArray[np.float64], budget_ms: float) -> frozenset[str]:
        """Returns the layers to keep in float for a budget: the most worth per millisecond first.

        Args:
            worth: [layers], what each brings in float, in any unit.
            budget_ms: what they may cost together.
        """
        cheapest = 0.05 * float(np.abs(self.costs_ms).mean()) + 1e-9
        order = np.argsort(-worth / np.maximum(self.costs_ms, cheapest), kind="stable")
        names, spent_ms = list(self._rows), 0.0
        chosen = []
        for row in order:
            if spent_ms + self.costs_ms[row] <= budget_ms:
                spent_ms += float(self.costs_ms[row])
                chosen.append(names[row])
        return frozenset(chosen)
