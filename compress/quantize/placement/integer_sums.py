"""Sums whose addends are both rounded, though one rounding more costs a little quality.

OpenVINO's Conv adds another tensor, applies the ReLU and rounds the sum in its own kernel only if
its own result is rounded before the sum. If not, sum and rounding are a kernel that reads floats.
So it is with residual sums and with the sums of feature pyramids. What a second rounding saves
depends on the network and on the machine: a quarter of the latency, or nothing. In residual sums
it hardly costs quality; in its kernel OpenVINO 2026.4 even leaves that rounding out, so that it
computes a little nearer to the float network than the file says.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import onnx

from compress.quantize.graph import Graph
from compress.quantize.placement.contract import QuantizedNode
from compress.quantize.placement.layers import CUTTING, sort_nodes
from compress.quantize.placement.movement import moved_inputs

INTEGER_SUMS = ("none", "blocks", "pyramids", "gates")
"""Residual sums alone, or pyramids too, or gated tensors too (`integer_gates`)."""


def add_integer_sums(
    graph: Graph,
    quantized: Sequence[QuantizedNode],
    in_float: Collection[str],
    *,
    has_pyramids: bool,
) -> list[QuantizedNode]:
    """Quantizes both inputs of residual Adds between ReLUs, and of Adds of resized ReLUs.

    Args:
        graph: the simplified float graph.
        quantized: the layers, and the Adds that have a quantized input anyway.
        in_float: names of the nodes that stay in float.
        has_pyramids: whether the latter are looked at.

    Returns:
        all of them and more Adds, in topological order.
    """
    found = {item.node: item for item in quantized}
    for node in graph.nodes:
        has_constant = any(name in graph.weights for name in node.input)
        if node.op_type != "Add" or has_constant or node.name in in_float:
            continue
        known = found.get(node.name)
        if known is None:
            is_sum = has_pyramids and _is_pyramid(graph, node, found)
        else:
            is_sum = _is_block(graph, node, known)
        if is_sum and _is_wanted(graph, node, found):
            both = QuantizedNode(node=node.name, activations=(0, 1))
            found[node.name] = both if known is None else replace(known, activations=(0, 1))
    return sort_nodes(graph, found.values())


def _is_block(graph: Graph, node: onnx.NodeProto, known: QuantizedNode) -> bool:
    """Whether a layer's result is added to a ReLU's and goes through a ReLU."""
    activation = graph.sole_consumer(node.output[0])
    maker = _find_maker(graph, node.input[known.activations[0]])
    is_cut = activation is not None and activation.op_type in CUTTING
    return is_cut and maker is not None and maker.op_type in CUTTING


def _is_pyramid(graph: Graph, node: onnx.NodeProto, found: Mapping[str, QuantizedNode]) -> bool:
    """Whether both addends are ReLUs behind layers, or such sums, resized or not."""
    shapes = [graph.shapes.get(name) for name in node.input]
    if None in shapes or shapes[0] != shapes[1]:
        return False
    for name in node.input:
        maker = _find_maker(graph, name)
        if maker is not None and maker.op_type in CUTTING:
            maker = graph.producer(maker.input[0])
            if maker is None or maker.name not in found or found[maker.name].weight is None:
                return False
        elif maker is None or maker.op_type != "Add" or not _reads_both(found.get(maker.name)):
            return False
    return True


def _reads_both(item: QuantizedNode | None) -> bool:
    return item is not None and len(item.activations) == 2


def _is_wanted(graph: Graph, node: onnx.NodeProto, found: Mapping[str, QuantizedNode]) -> bool:
    """Whether the sum, behind its ReLU, is read in integers."""
    readers = graph.consumers(node.output[0])
    if len(readers) == 1 and readers[0].op_type in CUTTING:
        node, readers = readers[0], graph.consumers(readers[0].output[0])
    return any(
        reader.input[position] == node.output[0]
        for reader in readers
        for position in (
            found[reader.name].activations if reader.name in found else moved_inputs(graph, reader)
        )
    )


def _find_maker(graph: Graph, tensor: str) -> onnx.NodeProto | None:
    """Returns the node that computed a tensor's values, whatever moved them since."""
    maker = graph.producer(tensor)
    while maker is not None and len(moved_inputs(graph, maker)) == 1:
        maker = graph.producer(maker.input[0])
    return maker
