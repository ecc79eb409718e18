"""How forms write nodes in the place of others."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Graph


def replace_nodes(
    graph: Graph, write: Callable[[onnx.NodeProto], list[onnx.NodeProto] | None]
) -> list[str]:
    """Puts other nodes in a node's place; None keeps it. Returns the names of those replaced."""
    nodes, replaced = [], []
    for node in graph.nodes:
        others = write(node)
        nodes += [node] if others is None else others
        replaced += [] if others is None else [node.name]
    graph.nodes = nodes
    graph.index()
    return replaced


def chain_nodes(
    graph: Graph, result: str, *links: tuple[str, Sequence[str | float]]
) -> list[onnx.NodeProto]:
    """Returns nodes of which each but the first reads the one before it, then its other operands.

    Args:
        graph: takes up the constants.
        result: the tensor that the last node writes, with shape and type of all of them.
        links: operator and other operands, tensors or numbers, of each node.
    """
    nodes: list[onnx.NodeProto] = []
    for number, (operator, operands) in enumerate(links):
        names = [nodes[-1].output[0]] if nodes else []
        for position, operand in enumerate(operands):
            name = operand
            if not isinstance(name, str):
                name = graph.unused_name(f"{result}_{operator}_{position}")
                graph.weights[name] = np.asarray(operand, np.float32)
            names.append(name)
        is_last = number == len(links) - 1
        output = result if is_last else graph.unused_name(f"{result}_{operator}")
        nodes.append(helper.make_node(operator, names, [output], f"{output}_{operator}"))
    return nodes


def make_reduction(
    graph: Graph, operator: str, data: str, axes: Sequence[int], result: str
) -> onnx.NodeProto:
    """Returns a reduction that keeps the axes; the opset says how these are given."""
    name = f"{result}_{operator}"
    if graph.opset < (13 if operator == "ReduceSum" else 18):
        return helper.make_node(operator, [data], [result], name, axes=axes, keepdims=1)
    given = graph.unused_name(f"{name}_axes")
    graph.weights[given] = np.array(axes, np.int64)
    return helper.make_node(operator, [data, given], [result], name, keepdims=1)
