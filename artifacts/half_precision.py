"""Networks in float16 or bfloat16, as networks in float32 with the same inputs and outputs."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifacts.graph_checks import node_subgraphs
from artifacts.shape_inference import infer_shapes

HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_WIDE = TensorProto.FLOAT
_TYPE_ATTRIBUTES = frozenset({"dtype", "to"})


def widen_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network with float32 instead of every type of half its size.

    Inputs and outputs keep their types: a Cast stands behind the one and before the other. Values
    stay as they are, and are rounded less often on their way.

    Args:
        model: not changed; returned itself where nothing of half size is inside.
    """
    if not _computes_in_half(model.graph):
        return model
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    graph = wide.graph
    del graph.value_info[:]
    inner = {
        item.name: f"{item.name}_float32"
        for item in (*graph.input, *graph.output)
        if item.type.tensor_type.elem_type in HALF
    }
    _widen_graph(graph, inner)
    before = [
        helper.make_node("Cast", [item.name], [inner[item.name]], f"{item.name}_widened", to=_WIDE)
        for item in graph.input
        if item.name in inner
    ]
    behind = [
        helper.make_node(
            "Cast",
            [inner[item.name]],
            [item.name],
            f"{item.name}_narrowed",
            to=item.type.tensor_type.elem_type,
        )
        for item in graph.output
        if item.name in inner
    ]
    nodes = [*before, *graph.node, *behind]
    del graph.node[:]
    graph.node.extend(nodes)
    return infer_shapes(wide)


def computes_in_bfloat16(model: onnx.ModelProto) -> bool:
    """Whether there are tensors in bfloat16, for which onnxruntime has no kernels on a CPU."""
    values = (*model.graph.value_info, *model.graph.initializer)
    return any(
        (item.type.tensor_type.elem_type if hasattr(item, "type") else item.data_type)
        == TensorProto.BFLOAT16
        for item in values
    )


def _computes_in_half(graph: onnx.GraphProto) -> bool:
    """Returns whether a constant is of half size, or a Cast makes what others read such.

    A network that was trained in mixed precision may hold its weights in float32 and cast them.
    """
    outputs = {value.name for value in graph.output}
    return any(tensor.data_type in HALF for tensor in graph.initializer) or any(
        (attribute.HasField("t") and attribute.t.data_type in HALF)
        or (_names_half(attribute) and not outputs.issuperset(node.output))
        or any(map(_computes_in_half, node_subgraphs(node)))
        for node in graph.node
        for attribute in node.attribute
    )


def _names_half(attribute: onnx.AttributeProto) -> bool:
    return attribute.name in _TYPE_ATTRIBUTES and attribute.i in HALF


def _widen_graph(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if _names_half(attribute):
                attribute.i = _WIDE
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
        for subgraph in node_subgraphs(node):
            for item in (*subgraph.input, *subgraph.output, *subgraph.value_info):
                item.name = names.get(item.name, item.name)
                if item.type.tensor_type.elem_type in HALF:
                    item.type.tensor_type.elem_type = _WIDE
            _widen_graph(subgraph, names)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in HALF:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
