"""Guards between 1x1 Convs and Transposes or Reshapes that OpenVINO would misread beside them.

`artifacts/openvino_products.py` says why. A LeakyRelu of slope 1 (`artifacts/openvino_guard.py`)
keeps a Conv one: behind it it is part of the Conv's kernel, in front of it a kernel of its own.
"""

import onnx

from artifacts.openvino_pooling import JOINED_WITH_CONV
from artifacts.openvino_products import misreads_input, misreads_result
from compress.quantize.graph import Graph
from compress.quantize.placement.node_writing import guard_input, guard_result, replace_nodes


def guard_turned_products(graph: Graph, *, has_integer_inputs: bool) -> list[str]:
    """Inserts the guards in place; returns the names of the Convs.

    Args:
        graph: in float; shapes are known where a Conv computes one vector: that may read integer
            weights alone.
        has_integer_inputs: whether other Convs multiply integers of 8 bits.
    """

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        weight = graph.weights.get(node.input[1]) if node.op_type == "Conv" else None
        if weight is None:
            return None
        is_alone = not has_integer_inputs or _is_vector(graph, node)
        reader = graph.reader_beyond(node.output[0], JOINED_WITH_CONV)
        before, after = [], []
        rank = None if reader is None else len(graph.shapes.get(reader.output[0], ()))
        if misreads_result(node, weight.shape, reader, rank, has_integer_input=not is_alone):
            after.append(guard_result(graph, node))
        if is_alone and misreads_input(node, weight.shape, graph.producer(node.input[0])):
            before.append(guard_input(graph, node))
        return [*before, node, *after] if before or after else None

    return replace_nodes(graph, write)


def _is_vector(graph: Graph, node: onnx.NodeProto) -> bool:
    return all(size == 1 for size in graph.shapes.get(node.output[0], ())[2:])
