"""Sets of layers that could stay in float."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.graph import attribute
from compress.quantize.layer_work import arithmetic_intensity, count_macs
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.sensitivity import SensitivityMatrix

SET_SIZES = (2, 4, 8, 16, 32)
INTENSITY_SHARES = (0.15, 0.3, 0.5, 0.75)
AROUND = 4
"""Sets that are looked at where a contract asks for more than was tried."""
TIMING_TOLERANCE = 0.02
"""Two networks whose latencies differ by a smaller share are equally fast."""
CEILING_DB = 60.0
"""Nobody sees what is better: a head that became exact must not outweigh one that is poor."""


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
        """The mean over heads of the predicted SQNR, each counted up to `CEILING_DB`."""
        return mean_db(self.head_db)


def mean_db(head_db: Mapping[str, float]) -> float:
    """Returns the mean over heads of their SQNR in dB, each counted up to `CEILING_DB`."""
    return float(np.mean([min(value, CEILING_DB) for value in head_db.values()] or [0.0]))


def predict_db(matrix: SensitivityMatrix | None, kept: frozenset[str]) -> dict[str, float]:
    """Returns the SQNR of each head, dB: the noise of the layers that are quantized, added up."""
    if matrix is None:
        return {}
    quantized = [row for row, name in enumerate(matrix.layers) if name not in kept]
    noise = matrix.head_noise()[quantized].sum(axis=0)
    db = -10 * np.log10(np.maximum(noise, 1e-20))
    return dict(zip(matrix.heads, db.tolist(), strict=True))


def gain_db(noise: NDArray[np.float64], is_kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns by how much each layer in float would raise the mean over heads, in dB.

    Args:
        noise: [layers, heads], see `SensitivityMatrix.head_noise`.
        is_kept: [layers], those that are in float already.

    Returns:
        [layers] float64, each head counted up to `CEILING_DB`.
    """
    least = 10 ** (-CEILING_DB / 10)
    left = noise[~is_kept].sum(axis=0)
    ratios = np.maximum(left, least) / np.maximum(left - noise, least)
    return np.asarray(10 * np.log10(ratios).mean(axis=1))


def list_meeting_sets(
    matrix: SensitivityMatrix, floors: Mapping[str, float]
) -> list[frozenset[str]]:
    """Returns the sets around the smallest one with which the matrix predicts that floors are met.

    Layer by layer, what costs the head that misses its floor by most the most goes to float.

    Args:
        matrix: what each layer costs each head.
        floors: SQNR in dB by head.
    """
    noise, heads = matrix.head_noise(), list(matrix.heads)
    kept: list[str] = []
    met: list[frozenset[str]] = []
    while len(kept) < len(matrix.layers) and len(met) < AROUND:
        db = predict_db(matrix, frozenset(kept))
        worst = min(floors, key=lambda head: db[head] - floors[head])
        column = noise[:, heads.index(worst)]
        left = [row for row, name in enumerate(matrix.layers) if name not in kept]
        kept.append(matrix.layers[max(left, key=lambda row: column[row])])
        db = predict_db(matrix, frozenset(kept))
        if all(db[head] >= floor for head, floor in floors.items()):
            met.append(frozenset(kept))
    return met


def list_cheap_sets(prepared: PreparedNetwork) -> list[frozenset[str]]:
    """Returns sets of the layers with the least work per activation, which gain the least."""
    graph = prepared.graph
    names = [item.node for item in prepared.quantized if not item.tied]
    intensity = np.array([arithmetic_intensity(graph, graph.node(name)) for name in names])
    order = np.argsort(intensity, kind="stable")
    counts = [int(share * len(names)) for share in INTENSITY_SHARES]
    return [frozenset(names[place] for place in order[:count]) for count in counts if count]


def list_kinds(prepared: PreparedNetwork) -> list[frozenset[str]]:
    """Returns the quantized nodes by kind, for runtimes that have no good INT8 kernel for one.

    A kind is an operator; convolutions with as many groups as outputs are one of their own, and so
    are dilated ones (in integers, kernels cannot skip what is outside the picture).
    """
    kinds: dict[str, set[str]] = {}
    for item in prepared.quantized:
        node = prepared.graph.node(item.node)
        kinds.setdefault(_kind(prepared, node), set()).add(item.node)
    return [frozenset(names) for _, names in sorted(kinds.items())]


def _kind(prepared: PreparedNetwork, node: onnx.NodeProto) -> str:
    groups = attribute(node, "group", 1)
    outputs = prepared.graph.shapes.get(node.output[0], (0, 0))[1:2]
    if groups > 1 and outputs == (groups,):
        return "depthwise"
    return "dilated" if max(attribute(node, "dilations", [1])) > 1 else node.op_type


def list_sensitive_sets(
    prepared: PreparedNetwork, matrix: SensitivityMatrix
) -> list[frozenset[str]]:
    """Returns sets of the layers that cost the most quality, and the most quality per work."""
    shares, macs = matrix.shares(), count_layer_macs(prepared, matrix.layers)
    typical = max(float(macs.mean()), 1.0)
    orders = [np.argsort(-score, kind="stable") for score in (shares, shares / (macs + typical))]
    sizes = sorted({min(size, len(shares) // 2) for size in SET_SIZES})
    return [
        frozenset(matrix.layers[place] for place in order[:size])
        for order in orders
        for size in sizes
    ]


def list_ends(prepared: PreparedNetwork) -> list[frozenset[str]]:
    """Returns the first layers, and the last: in one piece, few values pass between the kinds."""
    names = [item.node for item in prepared.quantized]
    sizes = [size for size in SET_SIZES if size <= len(names) // 2]
    return [frozenset(part) for size in sizes for part in (names[:size], names[-size:])]


def list_edges(prepared: PreparedNetwork) -> list[tuple[str, str, int]]:
    """Returns pairs of quantized nodes and the number of values that pass from one to the other.

    Nodes between them that are not quantized belong to the edge.
    """
    graph = prepared.graph
    quantized = {item.node for item in prepared.quantized}
    makers: dict[str, frozenset[str]] = {}
    edges = []
    for node in graph.nodes:
        sources = {name: makers.get(name, frozenset()) for name in node.input}
        if node.name in quantized:
            for name, origins in sources.items():
                values = math.prod(graph.shapes.get(name, ()))
                edges += [(origin, node.name, values) for origin in sorted(origins)]
            made = frozenset({node.name})
        else:
            made = frozenset().union(*sources.values())
        makers |= dict.fromkeys(node.output, made)
    return edges


def count_layer_macs(prepared: PreparedNetwork, names: Sequence[str]) -> np.ndarray:
    """Returns [layers] float64, the multiply-accumulates of layers; 0 where these are unknown."""
    graph = prepared.graph
    return np.array([count_macs(graph, graph.node(name)) or 0 for name in names], np.float64)
