"""A quantized network without its activations' Q/DQ pairs: what it computes unrounded."""

import onnx
from onnx import TensorProto, helper

from artifacts.graph_reading import read_tensors
from artifacts.unread_constants import drop_unread_constants

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


def remove_qdq(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network with its activations unquantized; its weights stay what they are.

    Integers that something else reads than a DQ (a Transpose, an output of the network) stay too.

    Args:
        model: a network with or without Q/DQ.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    graph = bare.graph
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    sources = {node.output[0]: node.input[0] for node in graph.node if node.op_type == _QUANTIZE}
    wanted = {value.name for value in graph.output}
    read = wanted.union(*(read_tensors(node) for node in graph.node if node.op_type != _DEQUANTIZE))
    nodes = []
    for node in graph.node:
        if node.op_type == _DEQUANTIZE and node.input[0] in sources:
            kind = kinds.get(node.input[1], TensorProto.FLOAT)
            node = helper.make_node("Cast", [sources[node.input[0]]], [node.output[0]], to=kind)
        if node.op_type != _QUANTIZE or node.output[0] in read:
            nodes.append(node)
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    drop_unread_constants(graph)
    return bare
