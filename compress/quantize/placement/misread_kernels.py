"""Layers that OpenVINO gets wrong in integers.

`artifacts/openvino_kernels.py` says which convolutions. The result has 0 dB or less of what the
graph says, or another shape. They have few channels, few places or no overlap of their windows,
hence little work, or would be wrong on AMX only, or are rare, and stay in float.
"""

import onnx

from artifacts.openvino_kernels import (
    miscomputes_conv,
    miscomputes_signed,
    miscomputes_transposed,
)
from compress.quantize.graph import Graph


def find_misread_kernels(graph: Graph) -> dict[str, str]:
    """Finds the layers that OpenVINO miscomputes: by name, why they stay in float."""
    reasons = {}
    for node in graph.nodes:
        weight = graph.weights.get(node.input[1]) if node.op_type in _FINDERS else None
        reason = "" if weight is None else _FINDERS[node.op_type](graph, node, weight.shape)
        if reason:
            reasons[node.name] = f"OpenVINO miscomputes {reason} in integers"
    return reasons


def find_misread_volumes(graph: Graph) -> dict[str, str]:
    """Finds the layers that OpenVINO miscomputes in signed integers: by name, why in float."""
    return {
        node.name: "OpenVINO miscomputes groups over three axes in signed integers"
        for node in graph.nodes
        if node.op_type == "Conv" and miscomputes_signed(node, graph.shapes.get(node.input[0], ()))
    }


def _miscomputed_conv(graph: Graph, node: onnx.NodeProto, weight: tuple[int, ...]) -> str:
    data, result = (graph.shapes.get(name) for name in (node.input[0], node.output[0]))
    if data and result and miscomputes_conv(node, data, weight, result):
        return f"kernels {weight[-1]} wide of {weight[1]} channels with such strides or groups"
    return ""


def _miscomputed_transposed(graph: Graph, node: onnx.NodeProto, weight: tuple[int, ...]) -> str:
    del graph
    is_wrong = miscomputes_transposed(node, weight)
    return f"a ConvTranspose of {weight[0]} channels, no multiple of 4," if is_wrong else ""


def _miscomputed_product(graph: Graph, node: onnx.NodeProto, weight: tuple[int, ...]) -> str:
    del weight
    is_row = len(graph.shapes.get(node.input[0], ())) == 1
    return "a MatMul of a single row without a batch" if is_row else ""


_FINDERS = {
    "Conv": _miscomputed_conv,
    "ConvTranspose": _miscomputed_transposed,
    "MatMul": _miscomputed_product,
}
