"""TensorRT's placement: explicit quantization with symmetric int8.

Q/DQ on the inputs of Conv, ConvTranspose, Gemm and MatMul (both inputs in attention), per-channel
on their weights, on one branch of a residual Add, and with one scale on all that a Concat joins;
none on biases, which TensorRT's parser refuses. See NVIDIA's documentation, "Working with Quantized
Types", section "Q/DQ Layer-Placement Recommendations". What others read in float, and only sums in
integers, such as a trunk whose blocks begin with a normalization, stays in float: TensorRT-RTX
1.7.1 makes the same kernels of both, and only rounds on the way (`tests/export/lint/test_fusions`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from compress.quantize.graph import Graph
from compress.quantize.placement.attention import AttentionRule
from compress.quantize.placement.contract import Declined, QuantizedNode
from compress.quantize.placement.integer_flow import tie_movement
from compress.quantize.placement.integer_gates import add_integer_gates
from compress.quantize.placement.integer_sums import add_integer_sums
from compress.quantize.placement.last_layers import keep_last_in_float
from compress.quantize.placement.layers import find_lone_sums, place_layers, sort_nodes
from compress.quantize.placement.misread_kernels import (
    find_misread_kernels,
    find_misread_volumes,
)
from compress.quantize.placement.openvino_forms import write_shared_forms
from compress.quantize.placement.reductions import find_layers_behind_reduction
from compress.quantize.placement.uniform_integers import UniformIntegers
from compress.quantize.placement.vector_layers import (
    keep_vectors_in_float,
    read_vectors_in_float,
)
from compress.quantize.qparams import IntegerGrid

OVERFLOWING = "products of two activations overflow in 16 bits, whatever the weights are"


@dataclass(frozen=True, kw_only=True)
class TensorRT(UniformIntegers):
    """Symmetric int8 with zero_point 0 everywhere.

    Attributes:
        symmetric: whether activations have their zero_point in the middle of the grid.
        quantizes_sums: whether an Add of two ReLUs reads integers on both sides.
        integer_sums: which sums round both addends, one of `integer_sums.INTEGER_SUMS`.
        trunk_loses_on: the runtime, where a trunk of Adds without activations stays in float.
        spares_float_sums: whether Adds read in float what others read in float, and only Adds
            would read in integers.
        vectors: how small layers that compute one vector do: in "integers", with integer "weights"
            only, or in "float".
        keeps_last_in_float: whether last layers of next to no work stay in float.
        most_last_traffic: what those may move more than in integers, see `keep_last_in_float`.
        is_for_16_bits: whether OpenVINO shall compute the same on processors without VNNI.
        multiplies_integers: whether layers multiply two integers of 8 bits.
    """

    fuses_products: ClassVar[bool] = True
    symmetric: bool = True
    quantizes_sums: bool = False
    integer_sums: str = "none"
    trunk_loses_on: str = ""
    spares_float_sums: bool = True
    vectors: str = "float"
    keeps_last_in_float: bool = True
    most_last_traffic: float = 0.02
    is_for_16_bits: bool = False
    multiplies_integers: bool = True

    def place(
        self, graph: Graph, keep_float: frozenset[str] = frozenset()
    ) -> tuple[list[QuantizedNode], list[Declined]]:
        """Returns the nodes to quantize in topological order, and those that were declined.

        Args:
            graph: the simplified float graph.
            keep_float: names of nodes that are declined without a look.
        """
        quantized, declined = place_layers(
            graph,
            keep_float,
            reasons=self.find_obstacles(graph),
            attention=self.attention,
            quantizes_sums=self.quantizes_sums,
            trunk_loses_on=self.trunk_loses_on,
        )
        if self.vectors == "weights":
            quantized = read_vectors_in_float(graph, quantized)
        elif self.vectors == "float":
            quantized, vectors = keep_vectors_in_float(graph, quantized)
            declined = [*declined, *vectors]
        if self.keeps_last_in_float:
            quantized, last = keep_last_in_float(graph, quantized, self.most_last_traffic)
            declined = [*declined, *last]
        if self.integer_sums != "none":
            in_float = keep_float | {item.node for item in declined}
            has_pyramids = self.integer_sums != "blocks"
            quantized = add_integer_sums(graph, quantized, in_float, has_pyramids=has_pyramids)
            if self.integer_sums == "gates":
                quantized = add_integer_gates(graph, quantized, in_float)
        moving, refused = tie_movement(graph, quantized, keep_float)
        if self.spares_float_sums:
            alone = find_lone_sums(graph, [*quantized, *moving])
            if alone:
                quantized = [item for item in quantized if item.node not in alone]
                moving, refused = tie_movement(graph, quantized, keep_float)
                refused = [*alone.values(), *refused]
        return sort_nodes(graph, [*quantized, *moving]), [*declined, *refused]

    @property
    def attention(self) -> AttentionRule:
        """Both products in one kernel, in integers where these fit."""
        return AttentionRule(float_reason=OVERFLOWING if self.is_for_16_bits else "")

    def find_obstacles(self, graph: Graph) -> dict[str, str]:
        """Finds the layers that have to stay in float: by name, why."""
        volumes = find_misread_volumes(graph) if self.symmetric else {}
        return find_layers_behind_reduction(graph) | find_misread_kernels(graph) | volumes

    def activation_grid(self, low: float) -> IntegerGrid:
        """Returns int8, whatever the values."""
        del low
        return IntegerGrid(bits=8, is_signed=True)

    def write_forms(self, graph: Graph) -> list[str]:
        """Writes what OpenVINO would get wrong; TensorRT compiles kernels for what it finds."""
        return write_shared_forms(
            graph, has_integer_attention=True, has_integer_inputs=self.multiplies_integers
        )

    def write_late_forms(self, graph: Graph, layers: Collection[str]) -> None:
        """Leaves operators as they are."""
