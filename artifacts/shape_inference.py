"""Shapes and types of all tensors, of operators too for which onnx infers none."""

from collections.abc import Iterator

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
    _forget_made_up_names(inferred.graph, {dim.dim_param for dim in _list_dims(graph)})
    return inferred


def _forget_made_up_names(graph: onnx.GraphProto, given: set[str]) -> None:
    """Leaves sizes that only the data decide without the names that onnx gives them.

    onnxruntime (1.32) takes sizes of one name for equal, and replaces what computes the shape of a
    Reshape by (0, -1): that fails where a detector finds no box.
    """
    for dim in _list_dims(graph):
        if dim.dim_param and dim.dim_param not in given:
            dim.ClearField("dim_param")


def _list_dims(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in (*graph.input, *graph.value_info, *graph.output):
        yield from value.type.tensor_type.shape.dim
