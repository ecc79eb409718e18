"""Gated tensors that all of their readers read in integers, though one rounding more costs quality.

Squeeze-and-excite reads the result of a layer three times: an average makes a gate of it, a product
applies the gate, and often a sum adds both:

    Conv - x - GlobalAveragePool - ... - Sigmoid - Mul(x, gate) - Add(x, .)

None of the readers is a layer, so the layer writes x as floats. With a pair on x it writes bytes,
and each reader reads a quarter of the memory. So it is with the pyramid behind: what a layer reads
in integers is then read in integers by the Resize too that enlarges it for the next sum. On
PP-OCRv4's text detection OpenVINO took a tenth less time, and a fourteenth on an SE-ResNet, which
adds the product to its shortcut; where no sum reads x or the product, it hardly saves anything
(`benchmarks/integer_sums.py`). So a measurement decides.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

import onnx

from compress.quantize.graph import Graph
from compress.quantize.placement.contract import QuantizedNode, find_read
from compress.quantize.placement.layers import sort_nodes
from compress.quantize.placement.movement import moved_inputs

AVERAGES = frozenset({"GlobalAveragePool", "ReduceMean"})


def add_integer_gates(
    graph: Graph, quantized: Sequence[QuantizedNode], in_float: Collection[str]
) -> list[QuantizedNode]:
    """Quantizes gated tensors for all of their readers, and what pyramids enlarge for their sums.

    Args:
        graph: the simplified float graph.
        quantized: the layers and sums that read integers.
        in_float: names of the nodes that stay in float.

    Returns:
        all of them, those that read gated tensors or resized ones, in topological order.
    """
    found = {item.node: item for item in quantized}
    gated = {
        node.input[0]
        for node in graph.nodes
        if node.op_type in AVERAGES and _is_gated(graph, node.input[0], in_float)
    }
    for tensor in gated:
        for reader in graph.consumers(tensor):
            _read_integers(found, reader, tensor)
    if gated:
        read = find_read(graph, found.values())
        for node in graph.nodes:
            if node.name not in in_float and _enlarges_for_sum(graph, node, read):
                _read_integers(found, node, node.input[0])
    return sort_nodes(graph, found.values())


def adds_gated(graph: Graph) -> bool:
    """Whether a sum reads a gated tensor, or its product with the gate."""
    tensors = (node.input[0] for node in graph.nodes if node.op_type in AVERAGES)
    return any(
        _adds(graph, reader, name)
        for tensor in tensors
        if _is_gated(graph, tensor, ())
        for name in (tensor, *_find_products(graph, tensor))
        for reader in graph.consumers(name)
    )


def _find_products(graph: Graph, tensor: str) -> list[str]:
    readers = graph.consumers(tensor)
    return [node.output[0] for node in readers if _applies_gate(graph, node, tensor)]


def _is_gated(graph: Graph, tensor: str, in_float: Collection[str]) -> bool:
    """Whether averages, products with gates and sums read a tensor, and nothing else."""
    readers = graph.consumers(tensor)
    is_computed = graph.producer(tensor) is not None and tensor not in graph.outputs
    return (
        is_computed
        and any(_applies_gate(graph, reader, tensor) for reader in readers)
        and all(
            reader.name not in in_float
            and (
                reader.op_type in AVERAGES
                or _applies_gate(graph, reader, tensor)
                or _adds(graph, reader, tensor)
            )
            for reader in readers
        )
    )


def _applies_gate(graph: Graph, node: onnx.NodeProto, tensor: str) -> bool:
    """Whether a node multiplies a tensor with a smaller one that is computed."""
    gate = _find_partner(graph, node, tensor)
    if node.op_type != "Mul" or gate is None:
        return False
    shape, gate_shape = graph.shapes.get(tensor), graph.shapes.get(gate)
    return shape is not None and gate_shape is not None and prod(gate_shape) < prod(shape)


def _adds(graph: Graph, node: onnx.NodeProto, tensor: str) -> bool:
    """Whether a node adds a tensor to another one that is computed."""
    return node.op_type == "Add" and _find_partner(graph, node, tensor) is not None


def _find_partner(graph: Graph, node: onnx.NodeProto, tensor: str) -> str | None:
    """Returns the one other input of a node, None where it is a constant or there are more."""
    others = [name for name in node.input if name != tensor]
    return others[0] if len(others) == 1 and others[0] not in graph.weights else None


def _enlarges_for_sum(graph: Graph, node: onnx.NodeProto, read: Collection[str]) -> bool:
    """Whether a nearest Resize makes an addend of what others read in integers."""
    if node.op_type != "Resize" or not moved_inputs(graph, node) or node.input[0] not in read:
        return False
    reader = graph.sole_consumer(node.output[0])
    return reader is not None and _adds(graph, reader, node.output[0])


def _read_integers(found: dict[str, QuantizedNode], node: onnx.NodeProto, tensor: str) -> None:
    known = found.get(node.name, QuantizedNode(node=node.name, activations=()))
    positions = {at for at, name in enumerate(node.input) if name == tensor}
    positions |= set(known.activations)
    found[node.name] = replace(known, activations=tuple(sorted(positions)))
