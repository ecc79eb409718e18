"""Limits that keep weights within sums of two, while they are trained."""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from artifacts.paired_products import LAYERS, LayerProducts
from compress.quantize.layer_weights import from_rows, to_rows
from compress.quantize.paired_grid import PairedGrid, grid_of_layer
from compress.quantize.qparams import WEIGHT_GRIDS

Limits = tuple[NDArray[np.float32], NDArray[np.float32]]


def find_pair_limits(graph: onnx.GraphProto) -> dict[str, Limits]:
    """Returns the smallest and largest integers of the weights that are paired, by their constant.

    Where all of a network's layers keep their sums (`artifacts.paired_products`), it was made so
    that nothing overflows: each weight then moves as far as its partner leaves it room, half each.
    Where any layer does not, or none has more than 7 bits, there are no such limits.
    """
    constants = {item.name: item for item in graph.initializer}
    makers = {output: node for node in graph.node for output in node.output}
    limits: dict[str, Limits] = {}
    widest = 0
    for node in graph.node:
        maker = makers.get(node.input[1]) if node.op_type in LAYERS else None
        stored = constants.get(maker.input[0]) if maker is not None else None
        if stored is None or stored.data_type != TensorProto.INT8:
            continue
        products = LayerProducts.of(node, tuple(stored.dims))
        integers = numpy_helper.to_array(stored)
        if products is None or products.count_overflowing(integers):
            return {}
        grid = grid_of_layer(WEIGHT_GRIDS["int8-pairs"], products)
        if isinstance(grid, PairedGrid):
            limits[stored.name] = _limit(grid, integers, products.axis)
            widest = max(widest, int(np.abs(integers.astype(np.int16)).max()))
    return limits if widest > WEIGHT_GRIDS["int7"].highest else {}


def _limit(grid: PairedGrid, integers: NDArray[np.int8], axis: int) -> Limits:
    low, high = (
        from_rows(np.asarray(limit), integers.shape, axis).astype(np.float32)
        for limit in grid.limits(to_rows(integers, axis))
    )
    return low, high
