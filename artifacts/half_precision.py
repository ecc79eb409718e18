"""Networks in float16, bfloat16 or double, as networks in float32."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifacts.graph_checks import node_subgraphs
from artifacts.shape_inference import infer_shapes

HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
DOUBLE = frozenset({TensorProto.DOUBLE})
_FLOAT32 = TensorProto.FLOAT
_TYPE_ATTRIBUTES = frozenset({"dtype", "to"})


def widen_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network with float32 instead of every type of half its size.

    Inputs and outputs keep their types: a Cast stands behind the one and before the other. Values
    stay as they are, and are rounded less often on their way.

    Args:
        model: not changed; returned itself where nothing of half size is inside.
    """
    if not _computes_in(model.graph, HALF):
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
    _write_graph(graph, inner, HALF)
    before = [
        helper.make_node(
            "Cast", [item.name], [inner[item.name]], f"{item.name}_widened", to=_FLOAT32
        )
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


def narrow_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network with float32 instead of double, at its inputs and outputs too.

    Runtimes on a CPU have no layers in double, and TensorRT computes them in float32.

    Args:
        model: not changed; returned itself where nothing is in double.
    """
    values = (*model.graph.input, *model.graph.output)
    if not _computes_in(model.graph, DOUBLE) and all(
        item.type.tensor_type.elem_type not in DOUBLE for item in values
    ):
        return model
    narrow = onnx.ModelProto()
    narrow.CopyFrom(model)
    del narrow.graph.value_info[:]
    for item in (*narrow.graph.input, *narrow.graph.output):
        if item.type.tensor_type.elem_type in DOUBLE:
            item.type.tensor_type.elem_type = _FLOAT32
    _write_graph(narrow.graph, {}, DOUBLE)
    return infer_shapes(narrow)


def computes_in_bfloat16(model: onnx.ModelProto) -> bool:
    """Whether there are tensors in bfloat16, for which onnxruntime has no kernels on a CPU."""
    values = (*model.graph.value_info, *model.graph.initializer)
    return any(
        (item.type.tensor_type.elem_type if hasattr(item, "type") else item.data_type)
        == TensorProto.BFLOAT16
        for item in values
    )


def _computes_in(graph: onnx.GraphProto, kinds: frozenset[int]) -> bool:
    """Returns whether a constant is of such a type, or a Cast makes what others read such.

    A network that was trained in mixed precision may hold its weights in float32 and cast them.
    """
    outputs = {value.name for value in graph.output}
    return any(tensor.data_type in kinds for tensor in graph.initializer) or any(
        (attribute.HasField("t") and attribute.t.data_type in kinds)
        or (_names_type(attribute, kinds) and not outputs.issuperset(node.output))
        or any(_computes_in(subgraph, kinds) for subgraph in node_subgraphs(node))
        for node in graph.node
        for attribute in node.attribute
    )


def _names_type(attribute: onnx.AttributeProto, kinds: frozenset[int]) -> bool:
    return attribute.name in _TYPE_ATTRIBUTES and attribute.i in kinds


def _write_graph(graph: onnx.GraphProto, names: Mapping[str, str], kinds: frozenset[int]) -> None:
    """Writes float32 in place of other types, and other names in place of some."""
    for tensor in graph.initializer:
        _write_tensor(tensor, kinds)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if _names_type(attribute, kinds):
                attribute.i = _FLOAT32
            if attribute.HasField("t"):
                _write_tensor(attribute.t, kinds)
        for subgraph in node_subgraphs(node):
            for item in (*subgraph.input, *subgraph.output, *subgraph.value_info):
                item.name = names.get(item.name, item.name)
                if item.type.tensor_type.elem_type in kinds:
                    item.type.tensor_type.elem_type = _FLOAT32
            _write_graph(subgraph, names, kinds)


def _write_tensor(tensor: onnx.TensorProto, kinds: frozenset[int]) -> None:
    """Writes a constant in float32; finite numbers stay finite."""
    if tensor.data_type not in kinds:
        return
    values = numpy_helper.to_array(tensor)
    if tensor.data_type in DOUBLE:
        most = np.finfo(np.float32).max
        values = np.where(np.isfinite(values), np.clip(values, -most, most), values)
    tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
