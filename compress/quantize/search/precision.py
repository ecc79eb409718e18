"""Which layers stay in float, by measured time and measured error.

Quantizing a layer saves time and costs quality, neither of which the other layers' shapes tell.
Time is therefore measured on the target, whole networks side by side; quality is added up from
the sensitivity matrix. Sets of float layers are tried in order of what they cost in quality, and in
order of that per multiply-accumulate, with and without the layers that gain the least time. The
preference says how much of the time that INT8 saves may be given back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray

from artifacts.errors import InputError
from compress.quantize.decisions import Decisions
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.contract import Finding
from compress.quantize.search.layer_cost import arithmetic_intensity, count_macs
from compress.quantize.search.sensitivity import SensitivityMatrix
from compress.quantize.settings import PREFERENCES

Clock = Callable[[Sequence[onnx.ModelProto]], Sequence[float]]
"""Times networks side by side on the target; returns the latency of each in ms."""

TIMING_TOLERANCE = 0.02
"""Two networks whose latencies differ by less are equally fast."""

SET_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
COMBINED_SIZES = (4, 8, 16)
INTENSITY_SHARES = (0.15, 0.3, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A set of layers in float.

    Attributes:
        float_nodes: their names.
        latency_ms: measured on the target.
        head_db: SQNR of each head that the sensitivity matrix predicts; empty without a matrix.
    """

    float_nodes: frozenset[str]
    latency_ms: float
    head_db: Mapping[str, float] = field(default_factory=dict)

    @property
    def quality_db(self) -> float:
        """The mean over heads of the predicted SQNR, each counted up to 100 dB."""
        return float(np.mean([min(value, 100.0) for value in self.head_db.values()] or [0.0]))


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
    """

    float_nodes: Mapping[str, str]
    float_ms: float
    int8_ms: float
    chosen: Candidate
    tried: tuple[Candidate, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The findings that break their contract."""
        return tuple(finding for finding in self.findings if not finding.is_kept)

    @property
    def is_float(self) -> bool:
        """Whether no quantized network was faster than the float one."""
        return self.chosen.latency_ms >= self.float_ms


@dataclass(frozen=True, kw_only=True)
class PrecisionSearch:
    """The candidates of a network, measured, to choose from.

    Attributes:
        prepared: the network.
        matrix: what each layer costs each head; None if only speed is considered.
        float_ms: latency of the float network.
        tried: the candidates; the first has no layer in float.
    """

    prepared: PreparedNetwork
    matrix: SensitivityMatrix | None
    float_ms: float
    tried: tuple[Candidate, ...]

    @classmethod
    def measure(
        cls,
        prepared: PreparedNetwork,
        decisions: Decisions,
        clock: Clock,
        matrix: SensitivityMatrix | None = None,
    ) -> "PrecisionSearch":
        """Times the candidates on the target.

        Args:
            prepared: the network.
            decisions: qparams and integers of every layer; only their timing matters here.
            clock: measures latencies.
            matrix: what each layer costs each head.
        """
        cheap = _cheap_sets(prepared)
        sets = [frozenset[str](), *cheap]
        if matrix is not None:
            sensitive = _sensitive_sets(prepared, matrix)
            costly = [kept for kept in sensitive if len(kept) in COMBINED_SIZES]
            sets += sensitive + [kept | other for kept in cheap[:-1] for other in costly]
        sets = list(dict.fromkeys(sets))
        names = {item.node for item in prepared.quantized}
        models = [prepared.write_model(decisions, only=frozenset(names - kept)) for kept in sets]
        float_ms, *latencies = clock([prepared.graph.copy().to_model(), *models])
        tried = [
            Candidate(float_nodes=kept, latency_ms=ms, head_db=_predict(matrix, kept))
            for kept, ms in zip(sets, latencies, strict=True)
        ]
        return cls(prepared=prepared, matrix=matrix, float_ms=float_ms, tried=tuple(tried))

    def choose(self, prefer: str, floors: Mapping[str, float] | None = None) -> PrecisionChoice:
        """Chooses the layers that stay in float.

        Args:
            prefer: a key of `PREFERENCES`.
            floors: the lowest SQNR that the matrix may predict, in dB, by head.

        Raises:
            InputError: there is no such head.
        """
        floors = floors or {}
        for head in floors:
            if self.matrix is None or head not in self.matrix.heads:
                known = ", ".join(self.matrix.heads) if self.matrix is not None else "none"
                raise InputError(f"a contract names head '{head}'", f"one of {known}")
        chosen = _choose(self.tried, self.float_ms, PREFERENCES[prefer], floors)
        if chosen.latency_ms >= self.float_ms:
            names = frozenset(item.node for item in self.prepared.quantized)
            chosen = Candidate(float_nodes=names, latency_ms=self.float_ms)
        return PrecisionChoice(
            float_nodes=_reasons(self.prepared, chosen, self.matrix, self.float_ms),
            float_ms=self.float_ms,
            int8_ms=self.tried[0].latency_ms,
            chosen=chosen,
            tried=self.tried,
        )


def _choose(
    tried: Sequence[Candidate], float_ms: float, share: float, contracts: Mapping[str, float]
) -> Candidate:
    """Returns the best candidate within the time that may be given back.

    Where contracts are not met within it, the fastest candidate that meets them and is still
    faster than float.
    """
    fastest_ms = min(item.latency_ms for item in tried)
    saved_ms = max(float_ms - fastest_ms, 0.0)
    limit_ms = max(fastest_ms + share * saved_ms, fastest_ms * (1 + TIMING_TOLERANCE))
    within = [item for item in tried if item.latency_ms <= limit_ms]
    best = max(within, key=lambda item: (item.quality_db, -item.latency_ms))
    if _meets(best, contracts):
        return best
    meeting = [item for item in tried if _meets(item, contracts) and item.latency_ms < float_ms]
    if meeting:
        return min(meeting, key=lambda item: item.latency_ms)
    return max(
        (item for item in tried if item.latency_ms < float_ms),
        key=lambda item: min(item.head_db[head] - floor for head, floor in contracts.items()),
        default=best,
    )


def _meets(candidate: Candidate, contracts: Mapping[str, float]) -> bool:
    return all(candidate.head_db[head] >= floor for head, floor in contracts.items())


def _predict(matrix: SensitivityMatrix | None, kept: frozenset[str]) -> dict[str, float]:
    """Adds up the noise of the layers that are quantized."""
    if matrix is None:
        return {}
    quantized = [row for row, name in enumerate(matrix.layers) if name not in kept]
    noise = matrix.head_noise()[quantized].sum(axis=0)
    db = -10 * np.log10(np.maximum(noise, 1e-20))
    return dict(zip(matrix.heads, db.tolist(), strict=True))


def _cheap_sets(prepared: PreparedNetwork) -> list[frozenset[str]]:
    """Returns sets of the layers with the least work per activation, which gain the least."""
    graph = prepared.graph
    names = [item.node for item in prepared.quantized if not item.tied]
    intensity = np.array([arithmetic_intensity(graph, graph.node(name)) for name in names])
    order = np.argsort(intensity, kind="stable")
    counts = [int(share * len(names)) for share in INTENSITY_SHARES]
    return [frozenset(names[place] for place in order[:count]) for count in counts if count]


def _sensitive_sets(prepared: PreparedNetwork, matrix: SensitivityMatrix) -> list[frozenset[str]]:
    """Returns sets of the layers that cost the most quality, and the most quality per work."""
    shares = matrix.shares()
    graph = prepared.graph
    macs = np.array([count_macs(graph, graph.node(name)) for name in matrix.layers], np.float64)
    typical = max(float(macs.mean()), 1.0)
    sets = []
    for score in (shares, shares / (macs + 0.1 * typical)):
        order = np.argsort(-score, kind="stable")
        sets += [_take(matrix.layers, order, size) for size in SET_SIZES]
    return sets


def _take(names: Sequence[str], order: NDArray[np.intp], size: int) -> frozenset[str]:
    return frozenset(names[place] for place in order[: min(size, len(names) // 2)])


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
        name: f"it costs {100 * shares[name]:.1f} % of the quantization noise" for name in names
    }
