"""Masks of attention that hide nothing, and guards against masks that hide everything.

Exporters write masked attention, and attention that might have been masked, as

    MatMul(Q, K) - Add(mask) - Softmax - Where(IsNaN(P), 0, P) - MatMul(P, V)

since a query that may look at no key has no probabilities but NaN. Where the mask is a constant
that leaves each query some key, the guard does nothing, and neither does a mask of zeros. Both keep
runtimes from seeing attention: TensorRT computes it in one kernel only without them, and they are
two more passes over the largest tensors of the network.
"""

import numpy as np
import onnx

from compress.quantize.graph import Array, Graph, attribute

ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div"})
MOVING = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity"})
FINITE = frozenset({"MatMul", "Gemm", "Einsum", "Conv"})
"""Whose results are finite wherever the network can be quantized at all."""


def drop_idle_masks(graph: Graph) -> list[str]:
    """Removes masks of zeros in front of a Softmax, and guards behind it that never act."""
    done = []
    for softmax in [node for node in graph.nodes if node.op_type == "Softmax"]:
        mask = graph.producer(softmax.input[0])
        if mask is not None and _adds_nothing(graph, mask):
            graph.rewire(mask.output[0], mask.input[_place_of_scores(graph, mask)])
            graph.remove([mask.name])
            done.append(f"removed {mask.name}, a mask that hides nothing")
        guard = _find_guard(graph, softmax)
        is_last = attribute(softmax, "axis", -1) in (-1, _rank(graph, softmax.input[0]) - 1)
        if guard is not None and is_last and _leaves_keys(graph, softmax.input[0]):
            graph.rewire(guard.output[0], softmax.output[0])
            graph.remove([guard.name])
            done.append(f"removed {guard.name}, which guards against a mask that hides all keys")
    return done


def guarded_by(graph: Graph, node: onnx.NodeProto) -> str | None:
    """Returns the tensor whose NaNs a node replaces by a constant; None if it does not do that."""
    if node.op_type != "Where" or node.input[1] not in graph.weights:
        return None
    asks = graph.producer(node.input[0])
    is_guard = asks is not None and asks.op_type == "IsNaN" and asks.input[0] == node.input[2]
    return node.input[2] if is_guard else None


def _find_guard(graph: Graph, softmax: onnx.NodeProto) -> onnx.NodeProto | None:
    """Returns the node that replaces the NaNs of a Softmax, where nothing else reads that."""
    readers = graph.consumers(softmax.output[0])
    guard = next((node for node in readers if guarded_by(graph, node) == softmax.output[0]), None)
    is_alone = guard is not None and len(readers) == 2 and guard.output[0] not in graph.outputs
    return guard if is_alone else None


def _adds_nothing(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether a node adds a constant of zeros, and does not enlarge what it is added to."""
    if node.op_type != "Add" or node.output[0] in graph.outputs:
        return False
    scores = _place_of_scores(graph, node)
    zeros, shape = graph.weights.get(node.input[1 - scores]), graph.shapes.get(node.input[scores])
    if zeros is None or shape is None or zeros.any():
        return False
    return np.broadcast_shapes(zeros.shape, shape) == tuple(shape)


def _place_of_scores(graph: Graph, add: onnx.NodeProto) -> int:
    return 1 if add.input[0] in graph.weights else 0


def _leaves_keys(graph: Graph, tensor: str) -> bool:
    """Whether each row of scores has a number, whatever the network is given."""
    masks, waiting = 0, [(tensor, False)]
    while waiting:
        name, is_added = waiting.pop()
        constant, maker = graph.weights.get(name), graph.producer(name)
        if constant is not None:
            is_mask = not np.isfinite(constant).all()
            masks += is_mask
            if is_mask and (masks > 1 or not is_added or not _spares_keys(constant)):
                return False
        elif maker is not None and maker.op_type in ELEMENTWISE:
            waiting += [(operand, maker.op_type == "Add") for operand in maker.input]
        elif maker is not None and maker.op_type in MOVING:
            waiting.append((maker.input[0], False))
        elif maker is not None and maker.op_type not in FINITE:
            return False
    return True


def _spares_keys(mask: Array) -> bool:
    """Whether no row, along the last axis, is all infinite, and nothing else than -inf is."""
    return bool((mask < np.inf).all() and mask.ndim and np.isfinite(mask).any(axis=-1).all())


def _rank(graph: Graph, tensor: str) -> int:
    return len(graph.shapes.get(tensor, ()))
