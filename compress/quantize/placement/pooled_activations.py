"""A guard between a MaxPool and an activation that OpenVINO would compute before it.

    Conv - MaxPool - Abs, HardSwish, Mish, SiLU, GELU

`artifacts/openvino_pooling.py` says why. A Max of the tensor with itself
(`artifacts/openvino_guard.py`) is a kernel of its own.
"""

import onnx

from artifacts.openvino_pooling import JOINED_WITH_CONV, falls_somewhere
from compress.quantize.graph import Graph
from compress.quantize.placement.node_writing import guard_result, replace_nodes


def guard_pooled_activations(graph: Graph) -> list[str]:
    """Inserts the guards in place; returns the names of the pools in front of them."""

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if node.op_type != "MaxPool" or len(node.output) > 1 or not _is_turned(graph, node):
            return None
        return [node, guard_result(graph, node, is_extremum=True)]

    return replace_nodes(graph, write)


def _is_turned(graph: Graph, pool: onnx.NodeProto) -> bool:
    """Whether a pool stands between a Conv and such an activation.

    A result of the network stays as it is, and what is computed of it is computed behind the pool.
    """
    maker, pooled = graph.maker_beyond(pool.input[0], JOINED_WITH_CONV), pool.output[0]
    if maker is None or maker.op_type != "Conv":
        return False
    if pooled in graph.outputs or pooled not in graph.shapes:
        return False
    return falls_somewhere([reader.op_type for reader in graph.consumers(pooled)])
