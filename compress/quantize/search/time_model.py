"""What keeping layers in float costs in time, estimated from whole networks that were timed.

A layer alone cannot be timed inside a network that a runtime fuses. Whole networks can, and each
says something about the layers by which it differs from the INT8 one. Their latency is modelled as
a sum: a cost of each layer that is in float, and a cost of each value that passes between a float
layer and a quantized one. With fewer timings than layers, Bayesian linear regression fills in what
is expected, until the timings say otherwise: the time that INT8 saves is spread over the layers,
half of it evenly and half by their multiply-accumulates. (C. Bishop, "Pattern Recognition and
Machine Learning", 2006, section 3.3.)
"""

from collections.abc import Callable, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

TIMING_NOISE = 0.01
"""Standard deviation of one network's timing, as a share of the latency."""
EXPECTED_CUT = 0.3
"""What cutting every edge between layers is expected to cost, as a share of the saved time."""

Sets = Sequence[frozenset[str]]
Edges = Sequence[tuple[str, str, int]]


class TimeModel:
    """The time that layers cost in float, beyond what they cost in INT8.

    Args:
        layers: names of the layers.
        macs: [layers], multiply-accumulates, from shapes.
        edges: pairs of layers with the number of values that pass between them.
        saved_ms: by how much the INT8 network is faster than the float one.
    """

    def __init__(
        self, layers: Sequence[str], macs: NDArray[np.float64], edges: Edges, saved_ms: float
    ) -> None:
        self._rows = {name: row for row, name in enumerate(layers)}
        self._edges = np.zeros((len(layers), len(layers)))
        for one, other, values in edges:
            if one in self._rows and other in self._rows:
                self._edges[self._rows[one], self._rows[other]] += values
        self._edges += self._edges.T
        self._edges /= max(self._edges.sum() / 2, 1.0)
        shares = 0.5 * macs / max(float(macs.sum()), 1.0) + 0.5 / len(layers)
        cut = EXPECTED_CUT * saved_ms
        self._expected = np.append(shares * saved_ms, cut)
        spread = 0.5 * (np.abs(shares * saved_ms) + abs(saved_ms) / len(layers))
        self._variance = np.square(np.append(spread, cut))
        self._costs_ms = self._expected
        self._covariance = np.diag(self._variance)

    @property
    def layer_costs_ms(self) -> NDArray[np.float64]:
        """[layers], the estimated cost of each layer in float, edges apart, in ms."""
        return self._costs_ms[:-1]

    def fit(self, sets: Sets, latencies_ms: Sequence[float]) -> None:
        """Estimates the costs from timed networks.

        Args:
            sets: the layers that each network keeps in float; the first keeps none.
            latencies_ms: of those networks.
        """
        design = np.array([self._describe(kept) for kept in sets[1:]])
        int8_ms, *others = latencies_ms
        noise = np.square(TIMING_NOISE * int8_ms)
        known = design * self._variance
        covariance = known @ design.T + noise * (np.eye(len(others)) + 1.0)
        residual = np.array(others) - int8_ms - design @ self._expected
        learned = np.linalg.solve(covariance, np.column_stack([residual, known]))
        self._costs_ms = self._expected + known.T @ learned[:, 0]
        self._covariance = np.diag(self._variance) - known.T @ learned[:, 1:]

    def draw(self, rng: np.random.Generator) -> "TimeModel":
        """Returns a model whose costs are drawn from what the timings leave possible.

        What such a model proposes is now and then what nobody has timed yet, and might be cheap
        (W. Thompson, Biometrika 25, 1933).
        """
        drawn = copy(self)
        drawn._costs_ms = rng.multivariate_normal(
            self._costs_ms, self._covariance, method="eigh", check_valid="ignore"
        )
        return drawn

    def predict_ms(self, kept: frozenset[str]) -> float:
        """Returns by how much layers in float are expected to slow the INT8 network down, in ms."""
        return float(self._describe(kept) @ self._costs_ms)

    def spend(
        self,
        worth: Callable[[NDArray[np.bool_]], NDArray[np.float64]],
        budget_ms: float,
        start: frozenset[str] = frozenset(),
    ) -> frozenset[str]:
        """Returns the layers to keep in float for a budget: the most worth per millisecond first.

        Args:
            worth: says for the layers in float, [layers], what each other one brings, [layers], in
                any unit; layers that bring nothing stay in integers.
            budget_ms: what they may cost together, beyond `start`.
            start: layers that are kept in any case.
        """
        layer_ms, cut_ms = self._costs_ms[:-1], max(float(self._costs_ms[-1]), 0.0)
        cheapest = 0.05 * float(np.abs(layer_ms).mean()) + 1e-9
        is_kept, spent_ms = self._describe(start)[:-1], 0.0
        degrees = self._edges.sum(axis=1)
        while not is_kept.all():
            costs = layer_ms + cut_ms * (degrees - 2 * self._edges @ is_kept)
            value = worth(is_kept > 0) / np.maximum(costs, cheapest)
            value[(is_kept > 0) | (spent_ms + costs > budget_ms)] = -1.0
            best = int(np.argmax(value))
            if value[best] <= 0:
                break
            is_kept[best] = 1.0
            spent_ms += float(costs[best])
        kept = (name for name, is_in in zip(self._rows, is_kept, strict=True) if is_in)
        return start.union(kept)

    def _describe(self, kept: frozenset[str]) -> NDArray[np.float64]:
        """Returns [layers + 1]: which layers are in float, and the share of values that cross."""
        chosen = np.zeros(len(self._rows))
        chosen[[self._rows[name] for name in kept if name in self._rows]] = 1.0
        crossing = chosen @ self._edges @ (1.0 - chosen)
        return np.append(chosen, crossing)
