"""Gives the channels that a depthwise layer reads similar ranges behind an activation.

Equalization moves factors into the layer that writes a tensor, which HardSwish, SiLU or a Clip in
between does not allow. Such an activation gets a product with one constant per channel instead,
x_c / f_c, and the depthwise layer, whose weights have a scale for every channel, takes f_c up
without loss. Together with the quantizer behind it that is a scale per channel, as NNCF gives
depthwise layers, written so that every runtime can read it. The product costs time where a runtime
does not fuse it, so it is only put where it takes away most of the layer's error.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from compress.quantize.graph import Array, Graph
from compress.quantize.placement import Placement
from compress.quantize.placement.movement import MOVING
from compress.quantize.qparams import WeightGrids
from compress.quantize.repairs.equalization import (
    Reach,
    SeenChannels,
    choose_factors,
    choose_reach,
    is_depthwise,
    observe_channels,
)
from compress.quantize.repairs.scale_group import LAYERS, filters, scale_input_channels

MOST_ERROR_LEFT = 0.5
SUFFIX = "framefit_channel_scale"
READERS = LAYERS | {"Gemm", "MatMul"}


def scale_channels(
    graph: Graph,
    samples: Sequence[dict[str, Array]],
    placement: Placement,
    quantized: Collection[str],
    weight_grids: WeightGrids,
) -> list[str]:
    """Inserts products in place where they halve the error of the depthwise layers behind them.

    Args:
        graph: the simplified float graph; its results stay.
        samples: calibration inputs.
        placement: tells the integers of activations.
        quantized: names of the nodes that will be quantized.
        weight_grids: the integers of weights.

    Returns:
        one line per product.
    """
    readers = _find_readers(graph, frozenset(quantized))
    if not readers:
        return []
    seen = observe_channels(graph, samples, sorted(readers))
    reach = choose_reach(len(samples), all_depthwise=True)
    found = {(tensor, 1): names for tensor, names in readers.items()}
    return insert_scales(graph, found, seen, placement, weight_grids, reach)


def insert_scales(
    graph: Graph,
    readers: Mapping[tuple[str, int], list[str]],
    seen: dict[str, SeenChannels],
    placement: Placement,
    weight_grids: WeightGrids,
    reach: Reach,
) -> list[str]:
    """Inserts products in place where they halve the error of the layers behind them.

    Args:
        graph: is changed.
        readers: the layers that are to read a product, by tensor and axis of its channels.
        seen: values of the tensors.
        placement: tells the integers of activations.
        weight_grids: the integers of weights.
        reach: the factors that are tried.

    Returns:
        one line per product.
    """
    done = []
    for (tensor, axis), names in readers.items():
        factors = choose_factors(
            graph, names, seen, placement, weight_grids, reach, MOST_ERROR_LEFT
        )
        if factors is not None:
            insert_scale(graph, tensor, names, factors, axis)
            done.append(
                f"scaled {len(factors)} channels of '{tensor}' before {', '.join(names)}, "
                f"factors {factors.min():.3f} to 1"
            )
    return done


def _find_readers(graph: Graph, quantized: frozenset[str]) -> dict[str, list[str]]:
    """Returns the depthwise layers of each tensor that nothing else reads."""
    found = {}
    for node in graph.nodes:
        tensor = node.output[0]
        names = [reader.name for reader in graph.consumers(tensor)]
        if (
            node.op_type not in LAYERS | MOVING
            and tensor not in graph.outputs
            and names
            and quantized.issuperset(names)
            and all(is_depthwise(graph, name) for name in names)
        ):
            found[tensor] = names
    return found


def insert_scale(
    graph: Graph, tensor: str, readers: list[str], factors: NDArray[np.float64], axis: int = 1
) -> None:
    """Lets layers read a tensor divided by `factors` [C], and multiplies their weights by them.

    Args:
        graph: is changed in place.
        tensor: what they read; its other readers keep it.
        readers: names of the layers.
        factors: one per channel.
        axis: of the channels in the tensor.
    """
    result, constant = (graph.unused_name(f"{tensor}_{end}") for end in ("scaled", SUFFIX))
    rank = graph.weights[graph.node(readers[0]).input[1]].ndim
    shape = [1] * len(graph.shapes.get(tensor, range(rank)))
    shape[axis] = -1
    graph.weights[constant] = (1 / factors).astype(np.float32).reshape(shape)
    product = helper.make_node("Mul", [tensor, constant], [result], result)
    makers = [index for index, node in enumerate(graph.nodes) if tensor in node.output]
    graph.insert(makers[0] + 1 if makers else 0, product)
    for name in readers:
        _let_read(graph, graph.node(name), result, factors)
    graph.index()
    graph.drop_unused_weights()


def fold_idle_scales(graph: Graph) -> None:
    """Takes out in place the products that no quantizer reads: their layers stay in float."""
    for node in graph.nodes:
        if node.op_type != "Mul" or SUFFIX not in node.input[1]:
            continue
        readers = graph.consumers(node.output[0])
        if all(item.op_type in READERS and item.input[1] in graph.weights for item in readers):
            divisors = graph.weights[node.input[1]].reshape(-1)
            for reader in readers:
                _let_read(graph, reader, node.input[0], divisors)
            graph.shapes.pop(node.output[0], None)
            graph.remove([node.name])
    graph.drop_unused_weights()


def _let_read(
    graph: Graph, layer: onnx.NodeProto, tensor: str, factors: NDArray[np.floating]
) -> None:
    weight = filters(layer, graph.weights[layer.input[1]])
    weight = filters(layer, scale_input_channels(layer, weight, factors))
    stored = graph.unused_name(f"{layer.name}_scaled_weight")
    graph.weights[stored] = weight.astype(np.float32)
    layer.input[0], layer.input[1] = tensor, stored
