"""TensorRT's placement: explicit quantization with symmetric int8.

Q/DQ on the inputs of Conv, ConvTranspose, Gemm and MatMul, per-channel on their weights, and on
one branch of a residual Add; none on biases, which TensorRT's parser refuses. See NVIDIA's
documentation, "Working with Quantized Types", sections "Q/DQ Layer-Placement Recommendations".
"""

from dataclasses import dataclass

from compress.quantize.graph import Graph
from compress.quantize.placement.contract import Declined, QuantizedNode
from compress.quantize.placement.integer_flow import tie_movement
from compress.quantize.placement.layers import place_layers, sort_nodes
from compress.quantize.qparams import IntegerGrid


@dataclass(frozen=True, kw_only=True)
class TensorRT:
    """Symmetric int8 with zero_point 0 everywhere."""

    symmetric: bool = True

    def place(
        self, graph: Graph, keep_float: frozenset[str] = frozenset()
    ) -> tuple[list[QuantizedNode], list[Declined]]:
        """Returns the nodes to quantize in topological order, and those that were declined.

        Args:
            graph: the simplified float graph.
            keep_float: names of nodes that are declined without a look.
        """
        quantized, declined = place_layers(graph, keep_float, {})
        moving, refused = tie_movement(graph, quantized, keep_float)
        return sort_nodes(graph, [*quantized, *moving]), [*declined, *refused]

    def activation_grid(self, low: float) -> IntegerGrid:
        """Returns int8, whatever the values."""
        del low
        return IntegerGrid(bits=8, is_signed=True)
