"""A network that ends at the outputs which are asked for."""

import json
from collections.abc import Sequence

import onnx

from artifacts.errors import InputError
from artifacts.graph_reading import read_tensors, typed_values
from artifacts.onnx_metadata import HEADS_KEY, read_metadata
from artifacts.unread_nodes import keep_read_nodes
from artifacts.wording import suggest_names


def require_names(wanted: Sequence[str], known: Sequence[str], what: str) -> None:
    """Refuses names that are not among the known ones, or that are given twice.

    Args:
        wanted: the names.
        known: those that there are.
        what: "an output of the module" or the like.

    Raises:
        InputError: with the names that are most like the first of the unknown.
    """
    for place, name in enumerate(wanted):
        if name not in known:
            raise InputError(f"'{name}' is no {what}", suggest_names(name, known, known))
        if name in wanted[:place]:
            raise InputError(f"'{name}' is asked for twice", "each output once")


def keep_outputs(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Ends a network at some of its outputs, or at tensors inside, and drops what these don't need.

    Args:
        model: in topological order, with inferred shapes; it is edited.
        names: its outputs from now on, in this order.

    Raises:
        InputError: there is no such tensor, or only an input or a constant.
    """
    graph = model.graph
    values = {item.name: item for item in typed_values(model)}
    made = [name for node in graph.node for name in node.output if name in values]
    outputs = [item.name for item in graph.output]
    known = list(dict.fromkeys([*outputs, *made]))
    require_names(names, known, "output or tensor of the network")
    kept = keep_read_nodes(graph.node, names)
    needed = {name for node in kept for name in read_tensors(node)}.union(names)
    ends = [values[name] for name in names]
    del graph.node[:], graph.output[:]
    graph.node.extend(kept)
    graph.output.extend(ends)
    for field, read in (
        (graph.input, needed),
        (graph.initializer, needed),
        (graph.value_info, needed.difference(names)),
    ):
        kept_items = [item for item in field if item.name in read]
        del field[:]
        field.extend(kept_items)
    _forget_heads(model, set(names))


def _forget_heads(model: onnx.ModelProto, names: set[str]) -> None:
    """Leaves the heads in the metadata that still have all of their outputs."""
    metadata = read_metadata(model)
    stated = json.loads(metadata.get(HEADS_KEY, "{}"))
    heads = {
        name: head for name, head in stated.items() if names.issuperset(head.get("outputs", [name]))
    }
    if heads != stated:
        onnx.helper.set_model_props(model, metadata | {HEADS_KEY: json.dumps(heads)})
