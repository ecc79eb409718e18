"""GroupNormalization with means per channel, for OpenVINO's layout.

Exporters write GroupNorm (Wu and He 2018, arXiv:1803.08494) as InstanceNormalization of each
group's channels in one row. OpenVINO (2026.4) keeps the channels last in memory: it reorders every
picture to make those rows, and back. The mean of each channel is computed in place; 1x1 Convs of
these few numbers give each group its mean, and each channel its group's. Results stay, up to
rounding.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.node_writing import NodeWriter


@dataclass(frozen=True)
class GroupNorm:
    """Nodes that normalize groups of channels.

    Attributes:
        nodes: in their order; the last one makes the result.
        groups: how many.
        scale: [channels] float32.
        bias: [channels] float32.
        epsilon: added to the variance.
    """

    nodes: tuple[onnx.NodeProto, ...]
    groups: int
    scale: np.ndarray
    bias: np.ndarray
    epsilon: float


def write_group_norms(graph: Graph) -> list[str]:
    """Rewrites all GroupNorms of pictures; returns the names of the normalizing nodes.

    The 1x1 Convs stay in float, so this comes after layers were chosen for integers.
    """
    found = {norm.nodes[-1].name: norm for norm in _find(graph)}
    gone = {node.name for norm in found.values() for node in norm.nodes}
    nodes: list[onnx.NodeProto] = []
    for node in graph.nodes:
        if node.name in found:
            nodes += _write(graph, found[node.name])
        elif node.name not in gone:
            nodes.append(node)
    graph.nodes = nodes
    graph.index()
    return [norm.nodes[len(norm.nodes) // 2].name for norm in found.values()]


def _find(graph: Graph) -> Iterator[GroupNorm]:
    for node in graph.nodes:
        nodes: tuple[onnx.NodeProto, ...] = (node,)
        if node.op_type == "InstanceNormalization":
            before, after = graph.producer(node.input[0]), graph.sole_consumer(node.output[0])
            if before is None or after is None or not _are_rows(graph, before, node, after):
                continue
            nodes = (before, node, after)
        elif node.op_type != "GroupNormalization":
            continue
        shape = graph.shapes.get(nodes[0].input[0], ())
        values = [graph.weights.get(name) for name in node.input[1:3]]
        if len(shape) != 4 or nodes[0].input[0] not in graph.float32:
            continue
        scale, bias = values
        if scale is None or bias is None:
            continue
        yield GroupNorm(
            nodes=nodes,
            groups=attribute(node, "num_groups", scale.size),
            scale=scale.repeat(shape[1] // scale.size),
            bias=bias.repeat(shape[1] // bias.size),
            epsilon=attribute(node, "epsilon", 1e-5),
        )


def _are_rows(
    graph: Graph, before: onnx.NodeProto, norm: onnx.NodeProto, after: onnx.NodeProto
) -> bool:
    """Whether a Reshape makes a row of each group's channels, and another one undoes that."""
    picture, rows = (graph.shapes.get(name, ()) for name in (before.input[0], norm.input[0]))
    return (
        before.op_type == after.op_type == "Reshape"
        and graph.sole_consumer(norm.input[0]) is norm
        and len(picture) == 4
        and len(rows) == 3
        and picture[0] == rows[0]
        and picture[1] % rows[1] == 0
        and graph.shapes.get(after.output[0]) == picture
    )


def _write(graph: Graph, norm: GroupNorm) -> list[onnx.NodeProto]:
    channels = norm.scale.size
    members = np.repeat(np.eye(norm.groups), channels // norm.groups, axis=1)
    writer = NodeWriter(graph, norm.nodes[-1].output[0])

    def mean(data: str) -> str:
        """Writes the mean of each group, for each channel, or once where there is one group."""
        means = writer.average(data, [2, 3])
        if norm.groups < channels:
            means = writer.convolve(means, members * norm.groups / channels)
        return writer.convolve(means, members.T) if 1 < norm.groups < channels else means

    scale, bias = (value.reshape(1, -1, 1, 1) for value in (norm.scale, norm.bias))
    writer.normalize(norm.nodes[0].input[0], mean, norm.epsilon, scale, bias)
    return writer.finish()
