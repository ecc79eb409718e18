"""Guards layers in float between integers, see `artifacts.onnxruntime_guard`."""

import numpy as np

from artifacts.onnxruntime_guard import PASSED_BY_ROUNDING, ROUNDED_LAYERS, make_guard
from compress.quantize.graph import Graph


def guard_float_layers(graph: Graph) -> None:
    """Puts a guard behind each layer whose weights onnxruntime would round on its own account.

    Args:
        graph: has its Q/DQ pairs; is changed in place.
    """
    rounded = [
        node
        for node in graph.nodes
        if node.op_type in ROUNDED_LAYERS
        and _is_float32(graph, node.input[1])
        and _is_dequantized(graph, node.input[0])
        and _leads_to_quantizer(graph, node.output[0])
    ]
    if not rounded:
        return
    for node in rounded:
        result = node.output[0]
        node.output[0] = graph.unused_name(f"{result}_unguarded")
        if result in graph.shapes:
            graph.shapes[node.output[0]] = graph.shapes[result]
        graph.float32.add(node.output[0])
        graph.nodes.insert(graph.nodes.index(node) + 1, make_guard(node.output[0], result))
    graph.index()


def _is_float32(graph: Graph, name: str) -> bool:
    weight = graph.weights.get(name)
    return weight is not None and weight.dtype == np.float32


def _is_dequantized(graph: Graph, tensor: str) -> bool:
    maker = graph.producer(tensor)
    return maker is not None and maker.op_type == "DequantizeLinear"


def _leads_to_quantizer(graph: Graph, tensor: str) -> bool:
    """Tells whether only a QuantizeLinear reads a tensor, past what onnxruntime looks past."""
    reader = graph.sole_consumer(tensor)
    while reader is not None and reader.op_type in PASSED_BY_ROUNDING:
        reader = graph.sole_consumer(reader.output[0])
    return reader is not None and reader.op_type == "QuantizeLinear"
