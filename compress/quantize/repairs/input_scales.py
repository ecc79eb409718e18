"""Gives what a network is given similar ranges in all channels, where its first layers read it.

A camera's channels are alike; the features of a lidar point (metres beside an intensity), a motion
vector, or a depth beside colours are not. One scale for all of them rounds the quiet ones away, and
no layer writes the tensor, so there is none that equalization could move factors into. A product
with one constant per channel goes in front of the layers instead, as `channel_scales` puts behind
activations.
"""

from collections.abc import Collection, Iterator

import onnx

from artifacts.graph_reading import read_tensors
from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import Placement
from compress.quantize.placement.reductions import find_unscalable
from compress.quantize.qparams import WeightGrids
from compress.quantize.repairs.channel_scales import READERS, ScaledRead, insert_where_it_pays
from compress.quantize.repairs.equalization import ENOUGH_SAMPLES, Reach

COMPUTING = READERS | {"Attention", "DeformConv", "GRU", "LSTM", "RNN"}
"""What comes behind these is the network's own, and no longer what it was given."""
FAR = Reach(exponents=(0.0, 0.25, 0.5, 0.75), smallest_factor=1 / 256)
"""Channels that stay below the others' range keep room for what was not seen."""
NEAR = Reach(exponents=(0.0, 0.25, 0.5), smallest_factor=1 / 256)


def scale_inputs(
    graph: Graph,
    survey: ChannelSurvey,
    placement: Placement,
    quantized: Collection[str],
    weight_grids: WeightGrids,
) -> list[str]:
    """Inserts products in place where they halve the error of the first layers.

    See `ScaleRepair` for arguments and result.
    """
    found = _find_readers(graph, list(_before_layers(graph)), frozenset(quantized))
    reach = FAR if len(survey.samples) >= ENOUGH_SAMPLES else NEAR
    lines = []
    for (tensor, axis), names in found.items():
        read = ScaledRead(tensor=tensor, axis=axis, readers=tuple(names))
        lines += insert_where_it_pays(graph, read, survey, placement, weight_grids, reach)
    return lines


def _before_layers(graph: Graph) -> Iterator[onnx.NodeProto]:
    """Yields the nodes that compute with the network's inputs before any layer does."""
    given = set(graph.inputs) | graph.weights.keys()
    for node in graph.nodes:
        if node.op_type not in COMPUTING and given.issuperset(read_tensors(node)):
            given |= set(node.output)
            yield node


def _find_readers(
    graph: Graph, nodes: list[onnx.NodeProto], quantized: frozenset[str]
) -> dict[tuple[str, int], list[str]]:
    """Returns the layers that read what the network is given: (tensor, channel axis) → names."""
    left = find_unscalable(graph)
    made = (name for node in nodes for name in node.output)
    given = [name for name in (*graph.inputs, *made) if name not in left]
    found: dict[tuple[str, int], list[str]] = {}
    for tensor in given:
        rank = len(graph.shapes.get(tensor, ()))
        for layer in graph.consumers(tensor):
            if rank > 1 and layer.name in quantized and layer.op_type in READERS:
                is_data = list(layer.input).index(tensor) == 0
                axis = rank - 1 if layer.op_type in ("Gemm", "MatMul") else 1
                if is_data and layer.input[1] in graph.weights:
                    found.setdefault((tensor, axis), []).append(layer.name)
    return found
