"""onnxruntime's placement: integer islands with both sides quantized.

Its CPU provider computes a Conv in integers only where the inputs, the weight, the bias (int32, at
the product of the input's and the weight's scale) and the output are all quantized; else it
dequantizes, and runs slower than in float. So every reader of a layer's result reads integers, a
residual Add both of its branches, unless all others read the other one in float. A layer whose
result somebody needs in float, or whose work is too little to pay for its quantizers, stays in
float. A Gemm alone can write floats from its integers: what no layer reads of it is not rounded,
which is faster too. Softmax and the rest of the decoders stay in float: the provider's integer
Softmax is several times slower than the float one.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import onnx

from compress.quantize.graph import Graph
from compress.quantize.layer_work import count_macs
from compress.quantize.placement.attention import AttentionRule
from compress.quantize.placement.contract import Declined, QuantizedNode, find_read
from compress.quantize.placement.flat_products import becomes_gemm, write_flat_products
from compress.quantize.placement.integer_flow import tie_movement
from compress.quantize.placement.last_layers import find_leading
from compress.quantize.placement.layers import (
    LAYERS,
    find_lone_sums,
    place_layers,
    sort_nodes,
)
from compress.quantize.placement.movement import moved_inputs
from compress.quantize.placement.reductions import find_layers_behind_reduction
from compress.quantize.placement.uniform_integers import UniformIntegers
from compress.quantize.placement.vector_layers import MOST_WEIGHTS
from compress.quantize.qparams import IntegerGrid

FUSED_ACTIVATIONS = frozenset({"Relu", "Clip"})
CLOSING = frozenset(
    {"Add", "Mul", "Sigmoid", "HardSigmoid", "HardSwish", "LeakyRelu", "PRelu", "Resize", "Concat"}
    | {"GlobalAveragePool", "AveragePool", "ReduceMean"}
)
"""Operators that may read a layer's result rounded to 8 bits."""
WRITING_FLOATS = frozenset({"Gemm"})
"""Layers whose integer kernel writes floats where neither a quantizer follows nor one of
`FUSED_ACTIVATIONS`. MatMul's does as well, but is slower than with rounding."""

IN_FLOAT = AttentionRule(
    float_reason="onnxruntime multiplies two computed matrices faster in float"
)


@dataclass(frozen=True, kw_only=True)
class OnnxRuntime(UniformIntegers):
    """Asymmetric uint8 with int8 weights and int32 biases.

    Attributes:
        fewest_multiplications: a layer with less of them stays in float.
        fewest_at_border: multiplications per value that a layer must do if its result is read by
            an operator that computes in float, which has to dequantize it.
        integer_borders: layers that alone would not pay for their quantizers are computed in
            integers too: where few stay in float, the network need not change between layouts. Not
            those behind which no other layer comes.
        multiplies_integers: whether integers of 8 bits are multiplied, which a Gemm does best.
    """

    fuses_products: ClassVar[bool] = False
    symmetric: bool = False
    fewest_multiplications: int = 20_000
    fewest_at_border: int = 128
    integer_borders: bool = False
    multiplies_integers: bool = True

    def place(
        self, graph: Graph, keep_float: frozenset[str] = frozenset()
    ) -> tuple[list[QuantizedNode], list[Declined]]:
        """Returns the nodes to quantize in topological order, and those that were declined."""
        leading = find_leading(graph)
        reasons = {
            node.name: reason
            for node in graph.nodes
            if (reason := self._find_obstacle(graph, node, is_last=leading.isdisjoint(node.output)))
        }
        reasons |= find_layers_behind_reduction(graph)
        quantized, declined = place_layers(graph, keep_float, reasons=reasons, attention=IN_FLOAT)
        moving, refused = tie_movement(graph, quantized, keep_float)
        alone = find_lone_sums(graph, [*quantized, *moving])
        quantized = [item for item in quantized if item.node not in alone]
        inside = [_with_all_inputs(graph, item) for item in moving]
        quantized = [replace(item, integer_bias=item.weight is not None) for item in quantized]
        inner = [*quantized, *inside]
        closed = _close(graph, inner, keep_float, self._find_rounded(graph, inner))
        return sort_nodes(graph, closed), [*declined, *refused, *alone.values()]

    def activation_grid(self, low: float) -> IntegerGrid:
        """Returns uint8, whatever the values."""
        del low
        return IntegerGrid(bits=8, is_signed=False)

    def write_forms(self, graph: Graph) -> list[str]:
        """Leaves operators as they are."""
        del graph
        return []

    def write_rescaled_forms(self, graph: Graph) -> list[str]:
        """Writes products with constant matrices as Gemms; returns a line for each."""
        names = write_flat_products(graph) if self.multiplies_integers else []
        return [f"{name} became a Gemm, for onnxruntime" for name in names]

    def write_late_forms(self, graph: Graph, layers: Collection[str]) -> None:
        """Leaves operators as they are."""

    def _find_rounded(self, graph: Graph, quantized: list[QuantizedNode]) -> frozenset[str]:
        """Returns what layers in integers round, each with an activation in its own kernel.

        Where a layer can write floats, it does unless one of its readers computes in integers.
        """
        read = find_read(graph, quantized)
        layers = [graph.node(item.node) for item in quantized if item.weight is not None]
        return frozenset(
            result
            for node in layers
            if (result := fused_result(graph, node)) in read
            or not self._can_write_floats(graph, node)
        )

    def _can_write_floats(self, graph: Graph, node: onnx.NodeProto) -> bool:
        """Returns whether a layer with constant weights need not round its result."""
        is_gemm = node.op_type in WRITING_FLOATS and node.input[1] in graph.weights
        is_gemm |= self.multiplies_integers and becomes_gemm(graph, node)
        return is_gemm and fused_result(graph, node) == node.output[0]

    def _find_obstacle(self, graph: Graph, node: onnx.NodeProto, *, is_last: bool) -> str:
        """Returns why a layer is better left in float; empty if it is not.

        A last layer, behind which no other follows, has no part in what borders cost, and nothing
        evens out its rounding: a depth's logarithm in front of an Exp.
        """
        work = count_macs(graph, node)
        if work is None:
            return ""
        result = fused_result(graph, node)
        writes_floats = self._can_write_floats(graph, node)
        is_large = writes_floats and graph.weights[node.input[1]].size > MOST_WEIGHTS
        if result in graph.outputs and not is_large:
            return f"its result '{result}' is an output of the network"
        if self.integer_borders and not is_last:
            return ""
        return self._find_loss(graph, node, work, result)

    def _find_loss(self, graph: Graph, node: onnx.NodeProto, work: int, result: str) -> str:
        """Returns why integers do not pay for a layer alone; empty if they do."""
        if work < self.fewest_multiplications:
            return f"{work} multiplications are too few to pay for its quantizers"
        if self._can_write_floats(graph, node) and work > MOST_WEIGHTS:
            return ""
        each = work // max(1, int(np.prod(graph.shapes.get(node.output[0], ()))))
        for reader in graph.consumers(result):
            if count_macs(graph, reader) is not None or moved_inputs(graph, reader):
                continue
            if reader.op_type not in CLOSING:
                return f"'{reader.name}' ({reader.op_type}) needs its result in float"
            if reader.op_type != "Add" and each < self.fewest_at_border:
                return (
                    f"'{reader.name}' ({reader.op_type}) computes in float, and {each}"
                    " multiplications per value are too few to pay for that"
                )
        where = _find_float_end(graph, result) if each < self.fewest_at_border else ""
        if where:
            return f"{where}, and {each} multiplications per value are too few to pay for that"
        return ""


def fused_result(graph: Graph, node: onnx.NodeProto) -> str:
    """Returns the tensor that a layer writes, an activation in its own kernel included."""
    reader = graph.sole_consumer(node.output[0])
    is_fused = reader is not None and reader.op_type in FUSED_ACTIVATIONS
    return str(reader.output[0] if reader is not None and is_fused else node.output[0])


def _find_float_end(graph: Graph, result: str) -> str:
    """Returns where a result that is only moved first is wanted in float; empty if nowhere."""
    held = [result]
    for name in held:
        if name in graph.outputs:
            return f"its moved result '{name}' is an output of the network"
        for reader in graph.consumers(name):
            if moved_inputs(graph, reader):
                held += [str(item) for item in reader.output if item and item not in held]
            elif reader.op_type not in LAYERS | CLOSING | FUSED_ACTIVATIONS:
                return f"'{reader.name}' ({reader.op_type}) needs its moved result in float"
    return ""


def _with_all_inputs(graph: Graph, item: QuantizedNode) -> QuantizedNode:
    node = graph.node(item.node)
    return replace(item, activations=moved_inputs(graph, node))


def _close(
    graph: Graph,
    quantized: list[QuantizedNode],
    keep_float: frozenset[str],
    rounded: frozenset[str],
) -> list[QuantizedNode]:
    """Lets every reader of what a layer rounds read it in integers.

    Layers in float read integers too, so that the one before them writes integers; other nodes that
    are to stay in float read what it computed.
    """
    chosen = {item.node: item for item in quantized}
    for node in graph.nodes:
        read = {position for position, name in enumerate(node.input) if name in rounded}
        if not read or (node.name in keep_float and node.op_type not in LAYERS):
            continue
        item = chosen.get(node.name)
        if item is None:
            chosen[node.name] = QuantizedNode(node=node.name, activations=tuple(sorted(read)))
        elif not item.tied:
            positions = tuple(sorted(read | set(item.activations)))
            chosen[node.name] = replace(item, activations=positions)
    return list(chosen.values())
