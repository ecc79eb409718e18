"""OpenVINO's placement: TensorRT's edges, with unsigned integers where they cost no time.

A ReLU's output in uint8 has twice the resolution that int8 gives it, and other activations use the
whole grid with a zero_point of their own. VNNI multiplies unsigned activations by signed weights
natively: OpenVINO turns int8 activations into uint8 ones anyway. Its kernels for AMX do not like
zero points: a Conv of 3x3 takes 1.8 times as long with one, most of all where it pads. What a
ConvTranspose reads never has one (`artifacts/openvino_transposed.py`).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

from compress.quantize.graph import Graph
from compress.quantize.placement.attention import AttentionRule
from compress.quantize.placement.contract import QuantizedNode
from compress.quantize.placement.float_kernels import find_float_kernels
from compress.quantize.placement.group_norms import write_group_norms
from compress.quantize.placement.movement import VIEWS
from compress.quantize.placement.openvino_forms import (
    convolve_pools,
    write_forms,
    write_shared_forms,
    write_swish_by_tanh,
)
from compress.quantize.placement.padded_convs import find_padded_inputs
from compress.quantize.placement.tensorrt import TensorRT
from compress.quantize.qparams import IntegerGrid

NOT_FASTER = "its product of two computed matrices was not measured to be faster in integers"


@dataclass(frozen=True, kw_only=True)
class OpenVINO(TensorRT):
    """Asymmetric uint8 everywhere but before ConvTransposes.

    Attributes:
        symmetric: no zero points, int8 where values are negative.
        spares_padded: the same for what padded Convs read, and only there.
        swish_by_tanh: SiLU behind spatial layers in integers is written with tanh.
        integer_attention: the products of attention are computed in integers.
    """

    symmetric: bool = False
    spares_padded: bool = False
    swish_by_tanh: bool = False
    integer_attention: bool = False
    quantizes_sums: bool = True
    trunk_loses_on: str = "OpenVINO"
    spares_float_sums: bool = False
    vectors: str = "weights"
    most_last_traffic: float = math.inf

    def activation_grid(self, low: float) -> IntegerGrid:
        """Returns uint8, or int8 for negative values where zero points are not wanted."""
        return IntegerGrid(bits=8, is_signed=self.symmetric and low < 0)

    @property
    def attention(self) -> AttentionRule:
        """Each product for itself; probabilities on the left are uint8."""
        reason = "" if self.integer_attention else NOT_FASTER
        return AttentionRule(float_reason=reason, are_alike=False, left_steps=255)

    def find_obstacles(self, graph: Graph) -> dict[str, str]:
        """Finds the layers that have to stay in float, or would in any case: by name, why."""
        return super().find_obstacles(graph) | find_float_kernels(graph)

    def find_plain_inputs(self, graph: Graph, item: QuantizedNode) -> tuple[int, ...]:
        """Returns all of a ConvTranspose and of a product of two computed matrices."""
        is_transposed = graph.node(item.node).op_type == "ConvTranspose"
        return item.activations if is_transposed or _is_attention(graph, item) else ()

    def find_spared(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> frozenset[str]:
        """Finds the plain inputs, and what padded Convs read where that is spared too."""
        padded = find_padded_inputs(graph) if self.spares_padded else frozenset[str]()
        return padded | {
            graph.node(item.node).input[position]
            for item in quantized
            for position in self.find_plain_inputs(graph, item)
        }

    def find_signed(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> frozenset[str]:
        """Finds the right operands of products of two computed matrices."""
        return frozenset(
            graph.node(item.node).input[1] for item in quantized if _is_attention(graph, item)
        )

    def find_passed(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> frozenset[str]:
        """Finds what comes of Transposes and Reshapes of integers.

        OpenVINO moves the DQ past them. With another pair behind them it converts int8 to uint8
        there, and computes the Transpose instead of changing the layout. Past the Concats and
        Slices of a shifted window it does not move it, and layers would read floats.
        """
        tied = {item.node for item in quantized if item.tied}
        passed: set[str] = set()
        for node in graph.nodes:
            if node.op_type in VIEWS and node.name in tied:
                maker = graph.producer(node.input[0])
                if node.input[0] in passed or maker is None or maker.name not in tied:
                    passed.update(node.output)
        return frozenset(passed)

    def without_zero_points(self) -> Self:
        """Returns the same, with int8 where values are negative."""
        return replace(self, symmetric=True)

    def write_forms(self, graph: Graph) -> list[str]:
        """Writes operators in place as OpenVINO's kernels want them; returns a line for each."""
        return write_forms(graph) + write_shared_forms(
            graph,
            has_integer_attention=self.integer_attention,
            has_integer_inputs=self.multiplies_integers,
        )

    def write_late_forms(self, graph: Graph, layers: Collection[str]) -> None:
        """Writes pools of pictures as Conv, GroupNorms by channel, and SiLU by tanh if chosen."""
        convolve_pools(graph)
        write_group_norms(graph)
        if self.swish_by_tanh:
            write_swish_by_tanh(graph, layers)


def _is_attention(graph: Graph, item: QuantizedNode) -> bool:
    """Whether a node multiplies two computed matrices."""
    return graph.node(item.node).op_type == "MatMul" and item.weight is None
