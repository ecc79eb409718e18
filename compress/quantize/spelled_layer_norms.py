"""Writes LayerNormalization over the last axis as one node where Keras spelled it out.

With m the mean of x and v that of (x - m)^2, Keras computes (Ba et al. 2016, arXiv:1607.06450)

    scale = gamma / sqrt(v + epsilon)        x * scale + (beta - m * scale)

and tf2onnx writes the means of three axes as GlobalAveragePool. No runtime knows that order of the
operators: each of them becomes a loop of its own.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Array, Graph, attribute

OLDEST_OPSET = 17


@dataclass(frozen=True)
class _LayerNorm:
    """What a LayerNormalization needs: the tensor, [C] factors and offsets, and epsilon."""

    data: str
    gamma: Array
    beta: Array
    epsilon: float


def join_spelled_layer_norms(graph: Graph) -> list[str]:
    """Joins each in place; what it no longer needs stays. Returns a line for each."""
    done: list[str] = []
    if graph.opset < OLDEST_OPSET:
        return done
    for place, node in enumerate(graph.nodes):
        norm = _find(graph, node) if node.op_type == "Add" else None
        if norm is not None:
            graph.nodes[place] = _write(graph, node, norm)
            graph.index()
            done.append(f"joined {node.name} and what it adds to a LayerNormalization")
    return done


def _find(graph: Graph, node: onnx.NodeProto) -> _LayerNorm | None:
    """Returns the norm whose last node this is."""
    for scaled, shifted in (tuple(node.input), tuple(reversed(node.input))):
        product, offset = graph.producer(scaled), _read_offset(graph, shifted)
        if product is None or product.op_type != "Mul" or offset is None:
            continue
        mean, scale, beta = offset
        if scale not in product.input:
            continue
        data = product.input[1 - list(product.input).index(scale)]
        norm = _read_scale(graph, scale, data, mean)
        channels = graph.shapes.get(data, (0,))[-1]
        if norm is not None and _is_row(norm[0], channels) and _is_row(beta, channels):
            gamma = np.broadcast_to(norm[0].reshape(-1), (channels,))
            offsets = np.broadcast_to(beta.reshape(-1), (channels,))
            return _LayerNorm(data=data, gamma=gamma, beta=offsets, epsilon=norm[1])
    return None


def _read_offset(graph: Graph, tensor: str) -> tuple[str, str, Array] | None:
    """Returns m, scale and beta of beta - m * scale, or of beta + -m * scale."""
    node = graph.producer(tensor)
    if node is None or node.op_type not in ("Add", "Sub"):
        return None
    beta, product = _first_constant(graph, node), _first_producer(graph, node)
    is_difference = node.op_type == "Sub"
    if beta is None or product is None or product.op_type != "Mul":
        return None
    if is_difference and node.input[0] not in graph.weights:
        return None
    for first, scale in (tuple(product.input), tuple(reversed(product.input))):
        maker = graph.producer(first)
        if is_difference and _is_mean(graph, first):
            return first, scale, beta
        if not is_difference and maker is not None and maker.op_type == "Neg":
            return maker.input[0], scale, beta
    return None


def _read_scale(graph: Graph, scale: str, data: str, mean: str) -> tuple[Array, float] | None:
    """Returns gamma and epsilon of gamma / sqrt(v + epsilon), where v is the variance of x."""
    product = graph.producer(scale)
    if product is None or product.op_type != "Mul":
        return None
    gamma, inverse = _first_constant(graph, product), _first_producer(graph, product)
    root = _read_through(graph, inverse, "Reciprocal")
    total = _read_through(graph, root, "Sqrt")
    if gamma is None or total is None or total.op_type != "Add":
        return None
    epsilon = _first_constant(graph, total)
    variance = next((name for name in total.input if name not in graph.weights), "")
    if epsilon is None or epsilon.size != 1 or not _is_variance(graph, variance, data, mean):
        return None
    return gamma, float(epsilon.item())


def _first_constant(graph: Graph, node: onnx.NodeProto) -> Array | None:
    return next((graph.weights[name] for name in node.input if name in graph.weights), None)


def _first_producer(graph: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    return next((item for name in node.input if (item := graph.producer(name))), None)


def _read_through(
    graph: Graph, node: onnx.NodeProto | None, operator: str
) -> onnx.NodeProto | None:
    """Returns what makes the operand of a node of one kind; None of any other node."""
    return graph.producer(node.input[0]) if node is not None and node.op_type == operator else None


def _is_variance(graph: Graph, tensor: str, data: str, mean: str) -> bool:
    maker = graph.producer(tensor) if _is_mean(graph, tensor) and _is_mean(graph, mean) else None
    square = graph.producer(maker.input[0]) if maker is not None else None
    center = graph.producer(mean)
    if square is None or center is None or center.input[0] != data:
        return False
    if square.op_type == "Pow":
        exponent = graph.weights.get(square.input[1])
        is_square = exponent is not None and exponent.size == 1 and exponent.item() == 2
    else:
        is_square = square.op_type == "Mul" and square.input[0] == square.input[1]
    difference = graph.producer(square.input[0])
    if difference is None or difference.op_type != "Sub":
        return False
    return is_square and list(difference.input) == [data, mean]


def _is_mean(graph: Graph, tensor: str) -> bool:
    """Tells whether a tensor is the mean over the last axis of another, which stays."""
    node = graph.producer(tensor)
    if node is None or node.input[0] not in graph.float32:
        return False
    rank = len(graph.shapes.get(node.input[0], ()))
    if node.op_type == "GlobalAveragePool":
        return rank == 3
    if node.op_type != "ReduceMean" or not attribute(node, "keepdims", 1) or rank == 0:
        return False
    axes = attribute(node, "axes", None)
    if axes is None and len(node.input) > 1:
        axes = graph.weights.get(node.input[1])
    return axes is not None and [int(axis) % rank for axis in axes] == [rank - 1]


def _is_row(values: Array, channels: int) -> bool:
    """Tells whether a constant has one value for all places, or one per channel."""
    return values.size == 1 or (values.size == channels and values.shape[-1] == channels)


def _write(graph: Graph, node: onnx.NodeProto, norm: _LayerNorm) -> onnx.NodeProto:
    names = []
    for values, kind in ((norm.gamma, "gamma"), (norm.beta, "beta")):
        names.append(graph.unused_name(f"{node.name}_{kind}"))
        graph.weights[names[-1]] = values.astype(np.float32)
    return helper.make_node(
        "LayerNormalization",
        [norm.data, *names],
        node.output,
        node.name,
        axis=-1,
        epsilon=norm.epsilon,
    )
