"""Convolutions that OpenVINO gets wrong in integers.

`artifacts/openvino_kernels.py` says which. The result has 0 dB or less of what the graph says. They
have few channels, few places or no overlap of their windows, hence little work, or would be wrong
on AMX only, and stay in float.
"""

from artifacts.openvino_kernels import miscomputes_conv
from compress.quantize.graph import Graph


def find_misread_kernels(graph: Graph) -> dict[str, str]:
    """Finds the layers that OpenVINO miscomputes: by name, why they stay in float."""
    reasons = {}
    for node in graph.nodes:
        weight = graph.weights.get(node.input[1]) if node.op_type == "Conv" else None
        shapes = [graph.shapes.get(name) for name in (node.input[0], node.output[0])]
        if weight is None or not all(shapes):
            continue
        data, result = (shape for shape in shapes if shape is not None)
        if miscomputes_conv(node, data, weight.shape, result):
            reasons[node.name] = (
                f"OpenVINO miscomputes kernels {weight.shape[-1]} wide of {weight.shape[1]} "
                "channels with such strides or groups in integers"
            )
    return reasons
