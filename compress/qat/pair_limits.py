"""Limits that keep weights within sums of two, while they are trained."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from artifacts.paired_products import RUNTIMES, LayerProducts
from compress.quantize.layer_weights import from_rows, to_rows
from compress.quantize.paired_grid import PairedGrid, grid_of_layer
from compress.quantize.placement.layers import LAYERS
from compress.quantize.qparams import WEIGHT_GRIDS

Limits = tuple[NDArray[np.float32], NDArray[np.float32]]
Layer = tuple[str, Sequence[LayerProducts | None], NDArray[np.int16]]


def find_pair_limits(graph: onnx.GraphProto) -> dict[str, Limits]:
    """Returns the smallest and largest integers of the weights that are paired, by their constant.

    Where all of a network's layers keep their sums (`artifacts.paired_products`), on OpenVINO and
    onnxruntime or on one of them, it was made so that nothing overflows there: each weight then
    moves as far as its partners leave it room, half each. Where any layer does not, or none has
    more than 7 bits, there are no such limits.
    """
    weights = [*_read_weights(graph)]
    if all(np.abs(integers).max() <= WEIGHT_GRIDS["int7"].highest for _, _, integers in weights):
        return {}
    for runtimes in (RUNTIMES, *((runtime,) for runtime in RUNTIMES)):
        layers = [
            (
                name,
                [LayerProducts.of(node, integers.shape, runtime) for runtime in runtimes],
                integers,
            )
            for name, node, integers in weights
        ]
        if all(map(_fits, layers)):
            return dict(_limit_all(layers))
    return {}


def _fits(layer: Layer) -> bool:
    _, products, integers = layer
    return all(item is not None and not item.count_overflowing(integers) for item in products)


def _read_weights(
    graph: onnx.GraphProto,
) -> Iterator[tuple[str, onnx.NodeProto, NDArray[np.int16]]]:
    constants = {item.name: item for item in graph.initializer}
    makers = {output: node for node in graph.node for output in node.output}
    for node in graph.node:
        maker = makers.get(node.input[1]) if node.op_type in LAYERS else None
        stored = constants.get(maker.input[0]) if maker is not None else None
        if stored is not None and stored.data_type == TensorProto.INT8:
            yield stored.name, node, numpy_helper.to_array(stored).astype(np.int16)


def _limit_all(layers: Iterable[Layer]) -> Iterator[tuple[str, Limits]]:
    for name, products, integers in layers:
        grid = grid_of_layer(WEIGHT_GRIDS["int8-pairs"], *products)
        if products[0] is not None and isinstance(grid, PairedGrid):
            yield name, _limit(grid, integers, products[0].axis)


def _limit(grid: PairedGrid, integers: NDArray[np.int16], axis: int) -> Limits:
    low, high = (
        from_rows(np.asarray(limit), integers.shape, axis).astype(np.float32)
        for limit in grid.limits(to_rows(integers, axis))
    )
    return low, high
