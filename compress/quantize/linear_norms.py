"""Folds BatchNormalization into the MatMul before it, past what moves the channels' axis.

A layer of points or tokens writes its channels on the last axis, and its norm takes axis 1:

    MatMul [B, N, C] - Transpose [B, C, N] - BatchNormalization
    MatMul [B, P, N, C] - Add - Reshape [B P N, C] - BatchNormalization

as PointNet, PointPillars and BatchNorm1d behind tokens are exported. Left alone, the norm computes
in float, and where the MatMul's result is rounded before it, one scale serves channels that only
the norm makes alike.
"""

from dataclasses import dataclass

import numpy as np
import onnx

from artifacts.moved_axes import MOVES, move_axis
from compress.quantize.graph import Array, Graph, attribute


def read_norm(graph: Graph, norm: onnx.NodeProto) -> tuple[Array, Array] | None:
    """Returns what a BatchNormalization multiplies each channel by and adds; None if computed.

    y = gamma * (x - mean) / sqrt(var + epsilon) + beta.
    """
    if any(name not in graph.weights for name in norm.input[1:5]) or len(norm.output) > 1:
        return None
    gamma, beta, mean, variance = (
        graph.weights[name].astype(np.float64) for name in norm.input[1:5]
    )
    factor = gamma / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
    return factor, beta - mean * factor


def fold_linear_norms(graph: Graph) -> list[str]:
    """Folds each BatchNormalization whose channels are the last axis of a MatMul before it."""
    done = []
    for norm in [node for node in graph.nodes if node.op_type == "BatchNormalization"]:
        terms, product = read_norm(graph, norm), _find_product(graph, norm.input[0])
        if terms is None or product is None:
            continue
        _fold(graph, product, *terms)
        maker = graph.producer(norm.input[0])
        if maker is not None:
            maker.output[list(maker.output).index(norm.input[0])] = norm.output[0]
        graph.remove([norm.name])
        done.append(f"folded {norm.name}")
    graph.drop_unused_weights()
    return done


@dataclass(frozen=True)
class _Product:
    """A MatMul by a constant, and the Add of a bias to it.

    Attributes:
        matmul: the node.
        add: None where nothing is added.
        bias: position of the constant among the Add's inputs.
    """

    matmul: onnx.NodeProto
    add: onnx.NodeProto | None = None
    bias: int = 0


def _find_product(graph: Graph, tensor: str) -> _Product | None:
    """Returns the MatMul whose last axis is axis 1 of a tensor that only one node reads."""
    axis, add, bias = 1, None, 0
    while graph.sole_consumer(tensor) is not None:
        node, shape = graph.producer(tensor), graph.shapes.get(tensor)
        if node is None or shape is None:
            return None
        if node.op_type == "MatMul":
            weight = graph.weights.get(node.input[1])
            is_layer = weight is not None and weight.ndim == 2 and axis == len(shape) - 1
            return _Product(node, add, bias) if is_layer else None
        if node.op_type == "Add" and add is None:
            found = _find_bias(graph, node, len(shape), axis)
            if found is None or graph.shapes.get(node.input[1 - found]) != shape:
                return None
            add, bias, tensor = node, found, node.input[1 - found]
            continue
        before = graph.shapes.get(node.input[0])
        if node.op_type not in MOVES - {"Cast"} or before is None:
            return None
        places = (at for at in range(len(before)) if before[at] == shape[axis])
        found = next((at for at in places if move_axis(node, before, shape, at) == axis), None)
        if found is None:
            return None
        axis, tensor = found, node.input[0]
    return None


def _find_bias(graph: Graph, add: onnx.NodeProto, rank: int, axis: int) -> int | None:
    """Returns the position of an Add's constant that has one value per place on an axis."""
    for position in (0, 1):
        value = graph.weights.get(add.input[position])
        if value is not None and value.ndim <= rank:
            sizes = (1,) * (rank - value.ndim) + value.shape
            if all(size == 1 for at, size in enumerate(sizes) if at != axis):
                return position
    return None


def _fold(graph: Graph, product: _Product, factor: Array, offset: Array) -> None:
    """Multiplies a product's channels by a factor each, and adds an offset to them."""
    matmul, add = product.matmul, product.add
    name = graph.unused_name(f"{matmul.name}_weight")
    graph.weights[name] = (graph.weights[matmul.input[1]] * factor).astype(np.float32)
    matmul.input[1] = name
    if add is None:
        bias = graph.unused_name(f"{matmul.name}_bias")
        graph.weights[bias] = offset.astype(np.float32)
        graph.add_behind(matmul, bias)
        return
    given = graph.weights[add.input[product.bias]]
    bias = graph.unused_name(f"{add.name}_bias")
    axis = next((at for at, size in enumerate(given.shape) if size > 1), given.ndim - 1)
    spread = (given.reshape(-1) * factor + offset).astype(np.float32)
    graph.weights[bias] = spread.reshape(
        [factor.size if at == axis else 1 for at in range(given.ndim)]
    )
    add.input[product.bias] = bias
