"""Parts of outputs where shapes are known only once constants are folded."""

from collections.abc import Sequence

import onnx

from artifacts.graph_reading import read_static_shapes, typed_values
from artifacts.output_parts import OutputPart, find_output_parts, read_output_parts
from compress.quantize.graph import Graph
from compress.quantize.simplify import fold_constants, remove_identities


def read_known_parts(
    model: onnx.ModelProto, tensors: Sequence[str] | None = None
) -> tuple[OutputPart, ...]:
    """Returns the parts of a model's outputs that quantization finds, see `find_output_parts`.

    Args:
        model: with the shapes of its tensors; those that follow from its constants may be missing.
            It is not changed.
        tensors: to take for its outputs; None for those it has.
    """
    known = read_static_shapes(typed_values(model))
    if all(name in known for node in model.graph.node for name in node.output if name):
        return read_output_parts(model, tensors)
    graph = Graph(model)
    remove_identities(graph)
    fold_constants(graph)
    names = list(graph.outputs) if tensors is None else tensors
    return find_output_parts(graph.nodes, graph.shapes, names)
