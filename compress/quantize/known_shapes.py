"""Shapes that are known only once constants are folded.

Exporters compute paddings, sizes and target shapes from shapes, in nodes that onnx does not follow:
behind one of them it knows the shape of nothing. Folded, each is a constant.
"""

import onnx

from artifacts.shape_inference import infer_shapes
from compress.quantize.graph import Graph

_MOST_VALUES = 1 << 10
"""In a constant that says what shape something has."""


def infer_missing_shapes(graph: Graph) -> bool:
    """Lets a graph know the shapes that follow from its constants; returns whether there were any.

    Results with a shape that is known already are left alone, and weights are not copied.
    """
    results = [name for node in graph.nodes for name in node.output if name]
    missing = {name for name in results if name not in graph.shapes}
    if not missing:
        return False
    twin = graph.copy()
    large = {name: value for name, value in graph.weights.items() if value.size > _MOST_VALUES}
    twin.weights = {name: value for name, value in graph.weights.items() if name not in large}
    model = twin.to_model()
    model.graph.input.extend(
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in large.items()
    )
    try:
        inferred = Graph(infer_shapes(model))
    except onnx.shape_inference.InferenceError:
        return False
    found = {name: shape for name, shape in inferred.shapes.items() if name in missing}
    graph.shapes |= found
    graph.float32 |= inferred.float32 & missing
    return bool(found)
