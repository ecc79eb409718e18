"""Networks whose inputs or outputs are bfloat16, as networks with these in float32.

numpy has no bfloat16, and of the runtimes on a CPU none takes or returns such arrays.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from artifacts.graph_checks import node_subgraphs

_log = logging.getLogger(__name__)
_SUFFIX = "_bfloat16"


def widen_edges(graph: onnx.GraphProto, label: Path) -> None:
    """Gives inputs and outputs that are bfloat16 the type float32, with a Cast behind or before.

    Args:
        graph: is edited; its outputs are computed by nodes.
        label: the file, for the warning that names the tensors.
    """
    inputs, outputs = _take_bfloat16(graph.input), _take_bfloat16(graph.output)
    if not inputs and not outputs:
        return
    names = {name: name + _SUFFIX for name in (*inputs, *outputs)}
    _rename(graph.node, names)
    before = [_cast(name, names[name], TensorProto.BFLOAT16) for name in inputs]
    behind = [_cast(names[name], name, TensorProto.FLOAT) for name in outputs]
    nodes = [*before, *graph.node, *behind]
    del graph.node[:]
    graph.node.extend(nodes)
    _log.warning(
        "%s: bfloat16 is no type of numpy; %s become float32, in what is written too",
        label,
        ", ".join(names),
    )


def _take_bfloat16(values: Iterable[onnx.ValueInfoProto]) -> list[str]:
    """Returns the names of values that were bfloat16 and are float32 now."""
    taken = []
    for value in values:
        if value.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
            taken.append(value.name)
    return taken


def _cast(source: str, target: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], f"{source}_cast", to=kind)


def _rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    for node in nodes:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
        for subgraph in node_subgraphs(node):
            _rename(subgraph.node, names)
            for result in subgraph.output:
                result.name = names.get(result.name, result.name)
