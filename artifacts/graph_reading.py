"""What a node reads, and what a model says of its tensors."""

from collections.abc import Iterator

import onnx

from artifacts.graph_checks import node_subgraphs


def read_tensors(node: onnx.NodeProto) -> Iterator[str]:
    """Yields every tensor a node reads, those that its subgraphs take from outside included."""
    yield from (name for name in node.input if name)
    for subgraph in node_subgraphs(node):
        inner = {item.name for item in subgraph.input}
        inner |= {tensor.name for tensor in subgraph.initializer}
        for child in subgraph.node:
            yield from (name for name in read_tensors(child) if name not in inner)
            inner |= set(child.output)
        yield from (item.name for item in subgraph.output if item.name not in inner)


def typed_values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Returns what a model says of its tensors' types and shapes."""
    return [*model.graph.input, *model.graph.value_info, *model.graph.output]
