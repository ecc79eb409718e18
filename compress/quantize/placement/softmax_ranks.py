"""Attention whose weights have fewer axes than its values, in a form that OpenVINO compiles.

    Softmax [H, T, S] - MatMul(., values [1, H, S, D])

onnxscript takes out the Reshapes around a product that are idle because MatMul broadcasts: of
attention that is written with `bmm` (Mask2Former's decoder), this is left. OpenVINO 2026.4 fuses
Softmax and product, counts the Softmax's axis from the first of the values' axes, and refuses the
network: "ReduceDecomposition supports only Reduce by last dimension". With as many axes for the
weights as for the values it compiles.
"""

import onnx
from onnx import helper

from compress.quantize.graph import Graph
from compress.quantize.placement.node_writing import describe_tensor, replace_nodes


def write_softmax_ranks(graph: Graph) -> list[str]:
    """Gives what such products read leading axes of length 1, in place; returns their names."""

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        missing = _count_missing(graph, node)
        if not missing:
            return None
        source = node.input[0]
        shape = (1,) * missing + tuple(graph.shapes[source])
        node.input[0] = describe_tensor(graph, f"{node.name}_softmax", source, shape)
        return [_unsqueeze(graph, source, node.input[0], missing), node]

    return replace_nodes(graph, write)


def _count_missing(graph: Graph, node: onnx.NodeProto) -> int:
    """Returns how many axes more a product's values have than its Softmax."""
    maker = graph.producer(node.input[0]) if node.op_type == "MatMul" else None
    if maker is None or maker.op_type != "Softmax":
        return 0
    short, long = (graph.shapes.get(name) for name in node.input)
    return max(len(long) - len(short), 0) if short and long else 0


def _unsqueeze(graph: Graph, source: str, result: str, missing: int) -> onnx.NodeProto:
    axes = list(range(missing))
    if graph.opset < 13:
        return helper.make_node("Unsqueeze", [source], [result], result, axes=axes)
    given = graph.add_integers(f"{result}_axes", axes)
    return helper.make_node("Unsqueeze", [source, given], [result], result)
