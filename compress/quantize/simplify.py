"""Simplifications that leave a float network's results as they are and make it quantizable.

Each pass edits the graph in place and returns one line for everything it did.
"""

from hashlib import sha256

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifacts.graph_checks import node_subgraphs
from compress.quantize.executor import run_constant
from compress.quantize.folded_pads import fold_pads
from compress.quantize.graph import Graph, attribute
from compress.quantize.idle_masks import drop_idle_masks
from compress.quantize.known_shapes import infer_missing_shapes
from compress.quantize.linear_norms import fold_linear_norms, read_norm
from compress.quantize.parallel_convs import join_parallel_convs
from compress.quantize.parted_concats import read_members
from compress.quantize.placement.layers import LAYERS
from compress.quantize.spelled_clips import join_spelled_clips
from compress.quantize.spelled_layer_norms import join_spelled_layer_norms
from compress.quantize.spelled_prelus import join_spelled_prelus
from compress.quantize.split_sequences import split_sequences
from compress.quantize.unseen_taps import cut_unseen_taps
from compress.quantize.written_slices import join_slices

NON_DETERMINISTIC = frozenset({"RandomNormal", "RandomUniform", "RandomNormalLike", "Multinomial"})
FOLDED_SIZE_LIMIT = 1 << 26


def simplify(graph: Graph) -> list[str]:
    """Runs all passes in their order; returns what they did."""
    done = write_casts(graph) + remove_identities(graph) + fold_constants(graph)
    split = split_sequences(graph)
    if split:
        done += split + remove_identities(graph) + fold_constants(graph)
    for simplification in (
        join_slices,
        read_members,
        drop_idle_masks,
        join_spelled_clips,
        join_spelled_prelus,
        join_spelled_layer_norms,
        remove_dead_nodes,
        fold_pads,
        cut_unseen_taps,
        transpose_gemm_weights,
        separate_gemm_offsets,
        fold_batch_norms,
        fold_linear_norms,
        fold_affines,
        join_parallel_convs,
    ):
        done += simplification(graph)
    graph.drop_unused_weights()
    return done


def share_equal_weights(graph: Graph) -> None:
    """Lets layers whose weights are equal read one: an exporter, or a fold, made copies of it."""
    first: dict[tuple[tuple[int, ...], bytes], str] = {}
    for node in graph.nodes:
        weight = graph.weights.get(node.input[1]) if node.op_type in LAYERS else None
        if weight is not None and weight.dtype == np.float32:
            key = (weight.shape, sha256(weight.tobytes()).digest())
            node.input[1] = first.setdefault(key, node.input[1])
    graph.index()
    graph.drop_unused_weights()


def write_casts(graph: Graph) -> list[str]:
    """Writes CastLike, whose second input only lends its type, as Cast to float32 where it is that.

    Exporters that do not optimize write each constant in this way, biases of zeros among them.
    """
    done = []
    for node in graph.nodes:
        if node.op_type == "CastLike" and node.input[1] in graph.float32:
            node.op_type = "Cast"
            del node.input[1:]
            node.attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
            done.append(f"wrote {node.name} as a Cast")
    graph.index()
    return done


def remove_identities(graph: Graph) -> list[str]:
    """Removes Identity and (inference) Dropout nodes, and turns Constant nodes into weights.

    So is a Cast of float32 to float32: half precision that became float32 leaves them behind.
    """
    removed = []
    for node in list(graph.nodes):
        if node.op_type == "Constant":
            value = _constant_value(node)
            if value is not None:
                graph.weights[node.output[0]] = value
                removed.append(node.name)
        elif _is_identity(graph, node) and _is_removable(graph, node):
            graph.rewire(node.output[0], node.input[0])
            removed.append(node.name)
            graph.index()
    graph.remove(removed)
    return [f"removed {name}" for name in removed]


def _is_identity(graph: Graph, node: onnx.NodeProto) -> bool:
    if node.op_type == "Cast":
        return attribute(node, "to", 0) == TensorProto.FLOAT and node.input[0] in graph.float32
    return node.op_type in ("Identity", "Dropout")


def _is_removable(graph: Graph, node: onnx.NodeProto) -> bool:
    has_mask = len(node.output) > 1 and bool(node.output[1])
    trains = node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2])
    captured = any(node.output[0] not in reader.input for reader in graph.consumers(node.output[0]))
    return not (has_mask or trains or captured or node.output[0] in graph.outputs)


def _constant_value(node: onnx.NodeProto) -> np.ndarray | None:
    tensor = attribute(node, "value", None)
    if tensor is not None:
        return np.asarray(numpy_helper.to_array(tensor))
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        for plural in (name, name + "s"):
            value = attribute(node, plural, None)
            if value is not None:
                return np.asarray(value, dtype)
    return None


def fold_constants(graph: Graph) -> list[str]:
    """Computes nodes that depend on constants only, and the shapes of tensors of known shape.

    What is folded may tell further shapes, and these what else is constant.
    """
    folded = _fold_once(graph)
    while infer_missing_shapes(graph):
        more = _fold_once(graph)
        if not more:
            break
        folded += more
    return [f"folded constant {name}" for name in folded]


def _fold_once(graph: Graph) -> list[str]:
    """Folds what is constant as far as shapes are known; returns the nodes' names."""
    folded = []
    for node in list(graph.nodes):
        if any(name in graph.outputs for name in node.output):
            continue
        if node.op_type == "Shape" and node.input[0] in graph.shapes:
            shape = graph.shapes[node.input[0]]
            end = attribute(node, "end", len(shape))
            values = [np.asarray(shape[attribute(node, "start", 0) : end], np.int64)]
        elif _is_constant(graph, node):
            values = run_constant(graph, node)
        else:
            continue
        if sum(value.nbytes for value in values) <= FOLDED_SIZE_LIMIT:
            graph.weights.update(zip((name for name in node.output if name), values, strict=True))
            folded.append(node.name)
    graph.remove(folded)
    return folded


def _is_constant(graph: Graph, node: onnx.NodeProto) -> bool:
    return (
        not node_subgraphs(node)
        and bool(node.input)
        and node.domain in ("", "ai.onnx")
        and node.op_type not in NON_DETERMINISTIC
        and node.op_type not in ("QuantizeLinear", "DequantizeLinear")
        and all(name in graph.weights for name in node.input if name)
    )


def remove_dead_nodes(graph: Graph) -> list[str]:
    """Removes nodes none of whose results reach an output."""
    removed: list[str] = []
    for node in reversed(list(graph.nodes)):
        if not any(graph.consumers(name) or name in graph.outputs for name in node.output):
            removed.append(node.name)
            graph.remove([node.name])
    return [f"removed {name}, which no output needs" for name in removed]


def transpose_gemm_weights(graph: Graph) -> list[str]:
    """Stores every Gemm weight as [out, in] (transB = 1) with alpha and beta folded in."""
    done = []
    for node in graph.nodes:
        if node.op_type != "Gemm" or node.input[1] not in graph.weights:
            continue
        has_bias = len(node.input) > 2 and bool(node.input[2])
        if has_bias and node.input[2] not in graph.weights:
            continue
        alpha, beta = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
        is_transposed = bool(attribute(node, "transB", 0))
        if is_transposed and alpha == 1.0 and (beta == 1.0 or not has_bias):
            continue
        weight = graph.weights[node.input[1]]
        weight = (weight if is_transposed else weight.T) * np.float32(alpha)
        node.input[1] = graph.unused_name(f"{node.name}_weight")
        graph.weights[node.input[1]] = np.ascontiguousarray(weight.astype(np.float32))
        if has_bias:
            bias = graph.weights[node.input[2]] * np.float32(beta)
            node.input[2] = graph.unused_name(f"{node.name}_bias")
            graph.weights[node.input[2]] = bias.astype(np.float32)
        kept = [item for item in node.attribute if item.name == "transA"]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute("transB", 1)])
        done.append(f"stored the weight of {node.name} as [out, in]")
    graph.index()
    return done


def separate_gemm_offsets(graph: Graph) -> list[str]:
    """Gives every Gemm a bias of one value per output, [out], or none and an Add behind it.

    What a Gemm adds may be of any shape that broadcasts; what differs between rows is no bias.
    """
    done = []
    for node in [node for node in graph.nodes if node.op_type == "Gemm" and len(node.input) > 2]:
        offset, weight = graph.weights.get(node.input[2]), graph.weights.get(node.input[1])
        if offset is None or weight is None or offset.shape == weight.shape[:1]:
            continue
        if offset.ndim < 2 or offset.shape[0] == 1:
            bias = np.broadcast_to(offset.reshape(-1), weight.shape[:1])
            node.input[2] = graph.unused_name(f"{node.name}_bias")
            graph.weights[node.input[2]] = bias.astype(np.float32)
        else:
            graph.add_behind(node, node.input.pop())
        done.append(f"gave {node.name} a bias of one value per output, or none")
    graph.index()
    return done


def fold_batch_norms(graph: Graph) -> list[str]:
    """Folds BatchNormalization into the Conv, ConvTranspose or Gemm before it.

    A norm is a factor and an offset per channel, and both move into the weights and the bias.
    """
    done = []
    for norm in [node for node in graph.nodes if node.op_type == "BatchNormalization"]:
        terms = read_norm(graph, norm)
        if terms is not None and _absorb(graph, norm, norm.input[0], *terms):
            done.append(f"folded {norm.name}")
    return done


def fold_affines(graph: Graph) -> list[str]:
    """Folds a Mul, Div, Add or Sub of one constant per channel into the layer before it."""
    done = []
    for node in [node for node in graph.nodes if node.op_type in ("Mul", "Div", "Add", "Sub")]:
        for position in (0, 1):
            constant = graph.weights.get(node.input[1 - position])
            tensor = node.input[position]
            layer = graph.producer(tensor)
            if constant is None or layer is None or constant.dtype != np.float32:
                continue
            values = _per_channel(constant, graph.shapes.get(tensor), layer)
            if values is None:
                continue
            terms = _affine_terms(node.op_type, values, is_first=position == 0)
            if terms is not None and _absorb(graph, node, tensor, *terms):
                done.append(f"folded {node.name}")
            break
    return done


def _affine_terms(
    operator: str, values: np.ndarray, *, is_first: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns factor and offset of x op values, or of values op x; None where it is not affine."""
    one, zero = np.ones_like(values), np.zeros_like(values)
    if operator == "Mul":
        return values, zero
    if operator == "Add":
        return one, values
    if operator == "Sub":
        return (one, -values) if is_first else (-one, values)
    return (1 / values, zero) if is_first and values.all() else None


def _per_channel(
    constant: np.ndarray, shape: tuple[int, ...] | None, layer: onnx.NodeProto
) -> np.ndarray | None:
    """Returns [C] float64 if `constant` broadcasts along the channel axis (1) only."""
    if shape is None or layer.op_type not in ("Conv", "ConvTranspose", "Gemm"):
        return None
    if constant.ndim > len(shape) or len(shape) < 2:
        return None
    aligned = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape)
    if any(size != 1 for axis, size in enumerate(aligned.shape) if axis != 1):
        return None
    if aligned.shape[1] not in (1, shape[1]):
        return None
    return np.broadcast_to(aligned.reshape(-1).astype(np.float64), (shape[1],)).copy()


def _absorb(
    graph: Graph, follower: onnx.NodeProto, tensor: str, factor: np.ndarray, offset: np.ndarray
) -> bool:
    """Moves y = factor * x + offset into the layer that makes x; True if it could."""
    layer, reader = graph.producer(tensor), graph.sole_consumer(tensor)
    if layer is None or reader is None:
        return False
    if (
        layer.op_type not in ("Conv", "ConvTranspose", "Gemm")
        or reader.name != follower.name
        or any(name and name not in graph.weights for name in layer.input[1:3])
        or len(follower.output) > 1
    ):
        return False
    weight = graph.weights[layer.input[1]].astype(np.float64)
    bias = (
        graph.weights[layer.input[2]].astype(np.float64).reshape(-1)
        if len(layer.input) > 2 and layer.input[2]
        else np.zeros(1)
    )
    scaled = scale_output_channels(layer, weight, factor)
    if scaled is None:
        return False
    new_bias = np.broadcast_to(bias, factor.shape) * factor + offset
    graph.replace_weights(layer, scaled.astype(np.float32), new_bias.astype(np.float32))
    result = follower.output[0]
    graph.remove([follower.name])
    layer.output[0] = result
    graph.index()
    return True


def scale_output_channels(
    layer: onnx.NodeProto, weight: np.ndarray, factor: np.ndarray
) -> np.ndarray | None:
    """Multiplies a layer's weight by one factor per output channel; None if shapes do not fit."""
    if layer.op_type == "ConvTranspose":
        groups = attribute(layer, "group", 1)
        inputs, outputs = weight.shape[:2]
        if outputs * groups != factor.size:
            return None
        tail = weight.shape[2:]
        grouped = weight.reshape(groups, inputs // groups, outputs, *tail)
        scaled = grouped * factor.reshape(groups, 1, outputs, *(1,) * len(tail))
        return np.asarray(scaled.reshape(weight.shape))
    if weight.shape[0] != factor.size:
        return None
    return np.asarray(weight * factor.reshape(-1, *(1,) * (weight.ndim - 1)))
