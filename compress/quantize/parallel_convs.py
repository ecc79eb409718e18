"""Convs of one tensor whose results are summed become one: RepVGG, MobileOne, DBB as they train.

Such networks have branches beside each other while they train, meant to be joined afterwards (Ding
et al., 2021, "RepVGG"). Where that was forgotten, each branch is a kernel of its own. With equal
strides and groups, and the windows of the smaller kernel inside those of the larger one,

    W1 * x + b1 + W2 * x + b2 = (W1 + pad(W2)) * x + (b1 + b2)

A BatchNormalization or a shortcut beside them stays: its weights would be the loudest of all.
"""

from collections import defaultdict
from collections.abc import Hashable

import numpy as np
import onnx

from compress.quantize.graph import Graph, attribute


def join_parallel_convs(graph: Graph) -> list[str]:
    """Joins Convs whose results only go into one sum; returns a line for each that is gone."""
    sums: dict[Hashable, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.nodes:
        total = _find_sum(graph, node) if node.op_type == "Conv" else None
        if total is not None:
            sums[(total, *_describe(graph, node))].append(node)
    done = []
    for nodes in sums.values():
        kept, *others = sorted(nodes, key=lambda node: -_weight(graph, node)[0, 0].size)
        for node in others:
            if _is_inside(graph, kept, node) and _take_out(graph, node):
                _add_weights(graph, kept, node)
                done.append(f"joined {node.name} with {kept.name}, which reads the same")
    return done


def _find_sum(graph: Graph, layer: onnx.NodeProto) -> str | None:
    """Returns the last Add of the sum that a Conv with constant weights goes into, if any."""
    if any(name and name not in graph.weights for name in layer.input[1:]):
        return None
    total, reader = None, graph.sole_consumer(layer.output[0])
    while reader is not None and reader.op_type == "Add" and len(set(reader.input)) == 2:
        total = reader.name
        reader = graph.sole_consumer(reader.output[0])
    return total


def _describe(graph: Graph, layer: onnx.NodeProto) -> tuple[Hashable, ...]:
    """Returns what Convs have in common that can be one."""
    listed = ((name, tuple(attribute(layer, name, ()))) for name in ("strides", "dilations"))
    given = {name: value for name, value in listed if any(one != 1 for one in value)}
    return (
        layer.input[0],
        attribute(layer, "group", 1),
        attribute(layer, "auto_pad", b"NOTSET"),
        tuple(given.items()),
        graph.shapes.get(layer.output[0]),
    )


def _weight(graph: Graph, layer: onnx.NodeProto) -> np.ndarray:
    return graph.weights[layer.input[1]]


def _pads(graph: Graph, layer: onnx.NodeProto) -> np.ndarray:
    """Returns how much is padded before and behind, [2, spatial axes]."""
    axes = _weight(graph, layer).ndim - 2
    return np.array(attribute(layer, "pads", [0] * 2 * axes)).reshape(2, axes)


def _is_inside(graph: Graph, outer: onnx.NodeProto, inner: onnx.NodeProto) -> bool:
    """Whether what a Conv reads for a result is a part of what another one reads for it."""
    is_plain = attribute(outer, "auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
    sizes = [_weight(graph, node).shape[2:] for node in (outer, inner)]
    is_dilated = any(step != 1 for step in attribute(outer, "dilations", ()))
    if not is_plain or graph.shapes.get(outer.output[0]) is None or is_dilated:
        return False
    start = (_pads(graph, outer) - _pads(graph, inner))[0]
    return bool((start >= 0).all() and (start + sizes[1] <= np.array(sizes[0])).all())


def _take_out(graph: Graph, layer: onnx.NodeProto) -> bool:
    """Takes a Conv out of the Add that reads it; False where it is an output and cannot leave."""
    (add,) = graph.consumers(layer.output[0])
    (other,) = [name for name in add.input if name != layer.output[0]]
    (result,) = add.output
    maker = graph.producer(other)
    if result not in graph.outputs:
        graph.rewire(result, other)
    elif maker is not None and graph.sole_consumer(other) is not None:
        maker.output[list(maker.output).index(other)] = result
    else:
        return False
    graph.remove([add.name, layer.name])
    return True


def _add_weights(graph: Graph, kept: onnx.NodeProto, gone: onnx.NodeProto) -> None:
    """Adds the weights and the bias of a Conv to those of one that reads around it."""
    weight = _weight(graph, kept).astype(np.float64)
    start = (_pads(graph, kept) - _pads(graph, gone))[0]
    added = _weight(graph, gone)
    window = tuple(slice(at, at + size) for at, size in zip(start, added.shape[2:], strict=True))
    weight[(slice(None), slice(None), *window)] += added
    bias = np.zeros(weight.shape[0])
    for name in (name for node in (kept, gone) for name in node.input[2:] if name):
        bias += graph.weights[name]
    graph.replace_weights(kept, weight.astype(np.float32), bias.astype(np.float32))
