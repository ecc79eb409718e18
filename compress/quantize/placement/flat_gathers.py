"""Gather whose indices are a number or have several axes, in a form that OpenVINO computes.

`x[:, :, 3]` takes an axis away, `unfold` and `x[:, :, table]` add axes, which OpenVINO gets wrong
behind integers (`artifacts/openvino_rescaling.py`). Indices in a row keep the axes, and a Reshape
behind makes them those of the Gather.
"""

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.node_writing import describe_tensor, replace_nodes


def write_flat_gathers(graph: Graph) -> list[str]:
    """Writes them in place, also behind decisions; returns the names of the nodes concerned.

    What is gathered from weights, or from other types than float32, stays.
    """

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        is_gather = node.op_type == "Gather" and node.input[0] in graph.float32
        return _flatten(graph, node) if is_gather else None

    return replace_nodes(graph, write, with_tail=True)


def _flatten(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Returns a Gather by indices in a row and a Reshape; None where shapes are not known."""
    data, indices = node.input
    value = graph.weights.get(indices)
    wanted = graph.shapes.get(indices) if value is None else value.shape
    shape, result = (graph.shapes.get(name) for name in (data, node.output[0]))
    if data in graph.weights or not shape or result is None or wanted is None or len(wanted) == 1:
        return None
    axis = attribute(node, "axis", 0) % len(shape)
    row = graph.unused_name(f"{node.name}_row")
    nodes = []
    if value is None:
        any_length = graph.add_integers(f"{row}_length", [-1])
        nodes.append(helper.make_node("Reshape", [indices, any_length], [row], row))
        graph.shapes[row] = (int(np.prod(wanted)),)
    else:
        graph.weights[row] = value.reshape(-1)
    flat_shape = (*shape[:axis], int(np.prod(wanted)), *shape[axis + 1 :])
    flat = describe_tensor(graph, f"{node.name}_flat", data, flat_shape)
    # A zero keeps the length that the tensor has: that of a batch may be free.
    target = graph.add_integers(f"{flat}_shape", [0] * axis + list(result[axis:]))
    return [
        *nodes,
        helper.make_node("Gather", [data, row], [flat], flat, axis=axis),
        helper.make_node("Reshape", [flat, target], [node.output[0]], node.name),
    ]
