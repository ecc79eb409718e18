"""A driving mode switches heads off; the network without them is cut out of the file."""

from pathlib import Path

import onnx

from artifacts.atomic import atomic_path
from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from artifacts.ownership import read_heads


def cut_to_heads(model: Path, heads: tuple[str, ...], out: Path) -> Path:
    """Writes the part of a network that its active heads need.

    Runtimes compute every output of a graph whoever asks for it, so what a head costs shows only
    where its nodes are gone.

    Args:
        model: an `.onnx` file.
        heads: names of the heads that are on, as `artifacts.ownership.read_heads` knows them.
        out: the file to write.

    Raises:
        InputError: it is no `.onnx` file, or has no such head.
    """
    if model.suffix.lower() != ".onnx":
        raise InputError(
            f"heads cannot be switched off in {model}", "an .onnx model", "build a plan per mode"
        )
    network = load_onnx(model)
    known = read_heads(network)
    for head in heads:
        if head not in known:
            raise InputError(f"{model} has no head '{head}'", ", ".join(known))
    outputs = [name for head in heads for name in known[head]]
    inputs = _needed_inputs(network.graph, outputs)
    part = onnx.utils.Extractor(network).extract_model(inputs, outputs)
    del part.metadata_props[:]
    part.metadata_props.extend(network.metadata_props)
    with atomic_path(out) as temporary:
        onnx.save(part, temporary)
    return out


def _needed_inputs(graph: onnx.GraphProto, outputs: list[str]) -> list[str]:
    """Returns the graph inputs that the outputs depend on, in the graph's order."""
    makers = {name: node for node in graph.node for name in node.output}
    seen: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            if name in makers:
                waiting += [item for item in makers[name].input if item]
    return [value.name for value in graph.input if value.name in seen]
