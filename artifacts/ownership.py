"""Which head of a network each node belongs to."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

import onnx

from artifacts.errors import InputError
from artifacts.onnx_metadata import HEADS_KEY, read_metadata

TRUNK = "trunk"


def read_heads(model: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """Returns the graph outputs of each head.

    They come from the model's metadata; a model without it has one head per output, named after it.
    Outputs that the metadata leaves out are heads of their own.
    """
    outputs = [output.name for output in model.graph.output]
    text = read_metadata(model).get(HEADS_KEY)
    stated = json.loads(text) if text else {}
    heads = {
        name: tuple(output for output in head.get("outputs", [name]) if output in outputs)
        for name, head in stated.items()
    }
    heads = {name: names for name, names in heads.items() if names}
    taken = {name for names in heads.values() for name in names}
    return heads | {name: (name,) for name in outputs if name not in taken}


def node_owners(
    model: onnx.ModelProto, heads: Mapping[str, Sequence[str]] | None = None
) -> dict[str, str]:
    """Returns the owner of each named node: `TRUNK` where several heads need it, else the head.

    Args:
        model: its nodes are in topological order; node names are unique.
        heads: the graph outputs of each head; None for `read_heads`.

    Returns:
        owner per node name; a node that no head needs is left out.

    Raises:
        InputError: a head names an output that the network does not have.
    """
    heads = read_heads(model) if heads is None else heads
    outputs = {output.name for output in model.graph.output}
    for head, names in heads.items():
        for name in names:
            if name not in outputs:
                raise InputError(
                    f"head '{head}' names output '{name}'", f"one of {', '.join(sorted(outputs))}"
                )
    needed_by: dict[str, set[str]] = defaultdict(set)
    for head, names in heads.items():
        for name in names:
            needed_by[name].add(head)
    owners: dict[str, str] = {}
    for node in reversed(model.graph.node):
        readers = set().union(*(needed_by[name] for name in node.output if name))
        for name in node.input:
            needed_by[name] |= readers
        if readers:
            owners[node.name] = next(iter(readers)) if len(readers) == 1 else TRUNK
    return owners
