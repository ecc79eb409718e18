"""Slices that a module writes in place, in what was exported of it."""

import onnx
from onnx import helper, numpy_helper

from artifacts.graph_reading import read_static_shapes, typed_values
from artifacts.shape_inference import infer_shapes
from artifacts.unread_constants import drop_unread_constants
from artifacts.written_slices import SCATTERS, join_written_slices


def write_without_scatters(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model whose scatters into slices are Concats and Pads; itself without such."""
    if not any(node.op_type in SCATTERS for node in model.graph.node):
        return model
    inferred = infer_shapes(model)
    weights = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    values = typed_values(inferred)
    outputs = [item.name for item in model.graph.output]
    written = join_written_slices(
        list(model.graph.node), weights, read_static_shapes(values), outputs
    )
    if written is None:
        return model
    types = {item.name: item.type.tensor_type.elem_type for item in values}
    del model.graph.node[:]
    model.graph.node.extend(written.nodes)
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in written.weights.items()
    )
    _drop_unread(model)
    known = {item.name for item in typed_values(model)}
    model.graph.value_info.extend(
        helper.make_tensor_value_info(
            name, types.get(written.sources[name], onnx.TensorProto.FLOAT), shape
        )
        for name, shape in written.shapes.items()
        if name not in known
    )
    return model


def _drop_unread(model: onnx.ModelProto) -> None:
    """Forgets constants and types of tensors that are gone."""
    graph = model.graph
    drop_unread_constants(graph)
    made = {name for node in graph.node for name in node.output}
    values = [item for item in graph.value_info if item.name in made]
    del graph.value_info[:]
    graph.value_info.extend(values)
