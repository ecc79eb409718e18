"""Shapes and types of all tensors, of operators too for which onnx infers none."""

import onnx

SHAPE_OF_FIRST_INPUT = frozenset({"GroupNormalization"})
"""Standard operators that onnx (1.23) does not infer, and whose result has the input's shape."""


def infer_shapes(
    model: onnx.ModelProto, *, is_strict: bool = False, checks_types: bool = False
) -> onnx.ModelProto:
    """Returns a copy of a model with all shapes and types that can be inferred.

    Args:
        model: not changed.
        is_strict: raises where shapes contradict each other or cannot be inferred.
        checks_types: raises where an operator does not take its inputs' types.

    Raises:
        onnx.shape_inference.InferenceError: if `is_strict` or `checks_types`.
    """
    graph = model.graph
    skipped = {
        place: onnx.NodeProto.FromString(node.SerializeToString())
        for place, node in enumerate(graph.node)
        if node.op_type in SHAPE_OF_FIRST_INPUT and node.domain in ("", "ai.onnx")
    }
    try:
        for place, node in skipped.items():
            graph.node[place].CopyFrom(
                onnx.helper.make_node("Identity", node.input[:1], node.output, node.name)
            )
        inferred = onnx.shape_inference.infer_shapes(
            model, check_type=checks_types, strict_mode=is_strict, data_prop=True
        )
    finally:
        for place, node in skipped.items():
            graph.node[place].CopyFrom(node)
    for place, node in skipped.items():
        inferred.graph.node[place].CopyFrom(node)
    return inferred
