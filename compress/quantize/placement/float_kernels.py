"""ConvTransposes that OpenVINO computes in float, or faster so.

`artifacts/openvino_transposed.py` says which. Rounding what they read costs quality and saves
nothing.
"""

from artifacts.openvino_transposed import find_float_trait
from compress.quantize.graph import Graph


def find_float_kernels(graph: Graph) -> dict[str, str]:
    """Finds the ConvTransposes without a kernel in integers: by name, why they stay in float."""
    reasons = {}
    for node in graph.nodes:
        weight = graph.weights.get(node.input[1]) if node.op_type == "ConvTranspose" else None
        trait = None if weight is None else find_float_trait(node, weight.shape[2:])
        if trait is not None:
            reasons[node.name] = f"OpenVINO has no fast ConvTranspose in integers with {trait}"
    return reasons
