"""Operators of somebody's own behind a network's last layer, such as TensorRT's EfficientNMS_TRT.

No runtime here computes them, and none has to: what is measured and quantized ends at the tensors
that they read. They are cut off when a file is opened and put back before one is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from artifacts.decided_outputs import find_before_layers
from artifacts.errors import InputError, first_line
from artifacts.graph_checks import is_known_operator, model_opset, node_subgraphs
from artifacts.graph_reading import read_constants, read_tensors
from artifacts.wording import name_some

_UNNAMED_DOMAIN = "TRT"
"""Given to plugins without a domain, which checkers take for standard operators; TensorRT's parser
goes by the operator's name alone."""


@dataclass(frozen=True, kw_only=True)
class PluginTail:
    """The end of a network, from its plugins on.

    Attributes:
        nodes: the plugins and all that depends on them.
        plugins: name (or first output) and operator of each plugin.
        entering: the tensors that the nodes read of the rest of the network.
        weights: constants that they read, under names of their own.
        outputs: all outputs of the whole network, in their order.
        domains: operator sets of the plugins.
    """

    nodes: tuple[onnx.NodeProto, ...]
    plugins: tuple[tuple[str, str], ...]
    entering: tuple[str, ...]
    weights: tuple[onnx.TensorProto, ...]
    outputs: tuple[onnx.ValueInfoProto, ...]
    domains: tuple[str, ...]

    def describe(self) -> str:
        """Returns in words what is left aside, and where the rest of the network ends."""
        named = name_some([f"'{name}' ({operator})" for name, operator in self.plugins], 3)
        return (
            f"{named}: no runtime here computes it, so it is kept as it is, and all is measured at "
            f"what it reads: {', '.join(self.entering)}"
        )


def cut_plugins(model: onnx.ModelProto) -> PluginTail | None:
    """Cuts operators that are no standard ones off a network's end; often there are none.

    Where a layer depends on one, the network stays as it is.

    Args:
        model: with its weights loaded, in topological order; it is edited. What the plugins read
            become its outputs.
    """
    nodes = list(model.graph.node)
    functions = {(item.domain, item.name) for item in model.functions}
    opset = model_opset(model)
    known = [is_known_operator(node, opset, functions) for node in nodes]
    if all(known):
        return None
    inside = _find_behind(nodes, known)
    constants = read_constants(model.graph)
    is_needed = find_before_layers(nodes, constants).intersection(inside)
    if is_needed or any(node_subgraphs(nodes[at]) for at in inside):
        return None
    read = dict.fromkeys(name for at in inside for name in read_tensors(nodes[at]))
    made = {name for at, node in enumerate(nodes) if at not in inside for name in node.output}
    entering = tuple(name for name in read if name in made and name not in constants)
    if not entering:
        return None
    renamed = {name: f"plugins/{name}" for name in read if name in constants}
    tail = PluginTail(
        nodes=tuple(_copy_node(nodes[at], renamed, is_plugin=not known[at]) for at in inside),
        plugins=tuple(
            (nodes[at].name or nodes[at].output[0], nodes[at].op_type)
            for at in inside
            if not known[at]
        ),
        entering=entering,
        weights=tuple(_copy_weight(constants[name], new) for name, new in renamed.items()),
        outputs=tuple(model.graph.output),
        domains=tuple(
            sorted({nodes[at].domain or _UNNAMED_DOMAIN for at in inside if not known[at]})
        ),
    )
    _end_before(model.graph, inside, entering)
    return tail


def join_plugins(model: onnx.ModelProto, tail: PluginTail | None) -> onnx.ModelProto:
    """Returns a network, which may be quantized, with the plugins behind it again.

    Args:
        model: it is not changed.
        tail: what was cut off; None if nothing was.

    Raises:
        InputError: an operator between plugins is written otherwise in the network's opset.
    """
    if tail is None:
        return model
    joined = onnx.ModelProto()
    joined.CopyFrom(model)
    graph = joined.graph
    current = {value.name: value for value in model.graph.output}
    del graph.output[:]
    graph.output.extend(current.get(value.name, value) for value in tail.outputs)
    shown = {value.name for value in graph.output}
    graph.value_info.extend(value for name, value in current.items() if name not in shown)
    graph.node.extend(tail.nodes)
    graph.initializer.extend(tail.weights)
    imported = {item.domain for item in joined.opset_import}
    for domain in tail.domains:
        if domain not in imported:
            joined.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    try:
        onnx.checker.check_model(joined)
    except onnx.checker.ValidationError as error:
        name, operator = tail.plugins[0]
        raise InputError(
            f"what follows '{name}' ({operator}) cannot be written in opset "
            f"{model_opset(joined)}: {first_line(error)}",
            fix="export the network with a newer opset",
        ) from error
    return joined


def _find_behind(nodes: Sequence[onnx.NodeProto], known: Sequence[bool]) -> dict[int, None]:
    """Returns the positions of the unknown operators, and of all that depends on their results."""
    made: set[str] = set()
    found: dict[int, None] = {}
    for at, node in enumerate(nodes):
        if not known[at] or not made.isdisjoint(read_tensors(node)):
            found[at] = None
            made.update(node.output)
    return found


def _end_before(graph: onnx.GraphProto, inside: dict[int, None], entering: Sequence[str]) -> None:
    gone = {name for at in inside for name in graph.node[at].output}
    kept = [node for at, node in enumerate(graph.node) if at not in inside]
    outputs = [value for value in graph.output if value.name not in gone]
    shown = {value.name for value in outputs}
    outputs += [
        onnx.helper.make_empty_tensor_value_info(name) for name in entering if name not in shown
    ]
    del graph.node[:], graph.output[:]
    graph.node.extend(kept)
    graph.output.extend(outputs)


def _copy_node(node: onnx.NodeProto, renamed: dict[str, str], *, is_plugin: bool) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [renamed.get(name, name) for name in node.input]
    if is_plugin and not node.domain:
        copy.domain = _UNNAMED_DOMAIN
    return copy


def _copy_weight(weight: onnx.TensorProto, name: str) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(weight)
    copy.name = name
    return copy
