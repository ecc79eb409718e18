"""How one layer's weight becomes integers, by what the settings say of such layers."""

from dataclasses import dataclass
from typing import Self

import onnx

from artifacts.paired_products import RUNTIMES, LayerProducts
from compress.quantize.graph import Array, Graph
from compress.quantize.layer_weights import (
    ChooseScales,
    QuantizedWeight,
    WeightLayout,
    choose_row_scales,
)
from compress.quantize.paired_grid import grid_of_layer
from compress.quantize.placement import QuantizedNode
from compress.quantize.qparams import IntegerGrid
from compress.quantize.rounding import Rounding
from compress.quantize.rounding.round_layer import LayerInputs, round_layer
from compress.quantize.settings import QuantizeSettings


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """How a layer is to be rounded.

    Attributes:
        node: the layer.
        layout: its weight's output channel axis and blocks.
        grid: the integers that are allowed.
        rounding: the method.
        choose_scales: finds the scale of each row (or block of one).
    """

    node: onnx.NodeProto
    layout: WeightLayout
    grid: IntegerGrid
    rounding: Rounding
    choose_scales: ChooseScales = choose_row_scales

    @classmethod
    def of(cls, graph: Graph, choice: QuantizedNode, settings: QuantizeSettings) -> Self:
        """Returns the plan of a node that has a weight."""
        node = graph.node(choice.node)
        weight = graph.weights[node.input[1]]
        common = settings.weight_grids.of(choice.node)
        products = (LayerProducts.of(node, weight.shape, runtime) for runtime in RUNTIMES)
        grid = grid_of_layer(common, *products)
        group = settings.weight_group if grid.bits == 4 else None
        layout = WeightLayout.of(weight.shape, choice.weight_axis, group)
        return cls(node=node, layout=layout, grid=grid, rounding=settings.rounding_for(grid))

    def round(self, weight: Array, inputs: LayerInputs | None) -> tuple[QuantizedWeight, str]:
        """Returns the integers of `weight` and, in words, how they were found (`round_layer`)."""
        return round_layer(
            *(self.node, weight, self.layout, self.grid, self.rounding, inputs, self.choose_scales)
        )
