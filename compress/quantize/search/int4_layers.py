"""Which layers keep INT8 weights in a network of INT4 weights.

A layer's weights cost quality in INT4 and half a byte each in INT8, and the two have nothing to do
with each other: a depthwise layer of a few hundred weights may cost more quality than half of the
network. So what INT4 weights cost is measured, layer by layer (HAWQ; Dong et al., ICCV 2019, asks
the Hessian instead), and INT8 goes where it brings the most for its bytes. Rounding to nearest
stands in for GPTQ in the measurement: asked in GPTQ's own errors, the choice was no better
(docs/rounding.md).

Layers whose 4-bit weights OpenVINO would misread (`artifacts/openvino_products.py`) have INT8
anyway.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

import onnx

from artifacts.openvino_products import misreads_int4
from artifacts.samples import pick_evenly
from artifacts.wording import name_some
from compress.progress import Progress
from compress.quantize.graph import Array, Graph
from compress.quantize.placement.layers import LAYERS
from compress.quantize.prepare import open_graph, prepare_network
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.rounding import Nearest
from compress.quantize.search.sensitivity import SensitivityMatrix, measure_layers, pick_measured
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

_log = logging.getLogger(__name__)

INT4_SHARE = 0.85
_MOST_NAMES = 3
MEASURED_SAMPLES = 8
"""Calibration samples that measure the layers, at most, evenly spread."""


def choose_int8_weights(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    progress: Progress | None = None,
) -> QuantizeSettings:
    """Returns the settings with the layers that keep INT8 weights, where they leave that open.

    Args:
        model: as for `quantize_model`.
        samples: its calibration samples.
        settings: how to quantize.
        progress: is told (what, done, total).
    """
    if settings.weights != "int4":
        return settings
    misread = _find_misread(open_graph(model, settings)[0])
    if misread:
        named = name_some(misread, _MOST_NAMES)
        _log.info("weights of %s stay in INT8: OpenVINO misreads odd rows of INT4", named)
    share = INT4_SHARE if settings.int4_share is None else settings.int4_share
    if settings.int8_weights is not None or share == 1:
        return replace(settings, int8_weights=_join(settings.int8_weights or (), misread))
    few = pick_evenly(samples, MEASURED_SAMPLES)
    weights_only = replace(
        settings,
        activations="float",
        symmetric=None,
        rounding=Nearest(),
        input_correction=False,
        int8_weights=misread,
        prefer=None,
        within_ms=None,
        contracts=(),
    )
    prepared = prepare_network(model, few, weights_only)
    decisions = StreamingPass(prepared, weights_only).run(few, progress)
    (matrix,) = measure_layers(prepared, decisions, [pick_measured(few)], progress=progress)
    names = take_costliest(prepared, matrix, 1 - share)
    _log.info("weights of %d of %d layers stay in INT8", len(names), len(matrix.layers))
    return replace(settings, int8_weights=_join(names, misread))


def _find_misread(graph: Graph) -> tuple[str, ...]:
    """Returns the names of the layers whose INT4 weights OpenVINO would misread."""
    layers = (node for node in graph.nodes if node.op_type in LAYERS)
    return tuple(
        node.name
        for node in layers
        if node.input[1] in graph.weights
        and misreads_int4(node, graph.weights[node.input[1]].shape)
    )


def _join(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*names, *others]))


def take_costliest(
    prepared: PreparedNetwork, matrix: SensitivityMatrix, share: float
) -> tuple[str, ...]:
    """Returns the layers that cost the most quality for their weights, in topological order.

    Layers that share a weight go together: the file holds it once.

    Args:
        prepared: the network.
        matrix: what the layers cost.
        share: of all weights, that those of the returned layers may be.
    """
    readers: dict[str, list[str]] = {}
    costs: dict[str, float] = {}
    for name, cost in zip(matrix.layers, matrix.shares(), strict=True):
        weight = prepared.graph.node(name).input[1]
        readers.setdefault(weight, []).append(name)
        costs[weight] = costs.get(weight, 0.0) + float(cost)
    sizes = {weight: prepared.graph.weights[weight].size for weight in readers}
    left = share * sum(sizes.values())
    taken: set[str] = set()
    for weight in sorted(costs, key=lambda item: costs[item] / sizes[item], reverse=True):
        if sizes[weight] <= left and costs[weight] > 0:
            left -= sizes[weight]
            taken.update(readers[weight])
    return tuple(name for name in matrix.layers if name in taken)
