"""Operators written in the form that OpenVINO's fast kernels for CPUs take; results stay.

What it does with other forms, in 2026.4 (`benchmarks/kernel_forms.py` measures it):

* A constant per channel of shape [C, 1, 1] beside an activation [N, C, H, W], as exporters write a
  PReLU's slopes: with ranks that differ it computes channel by channel, and reorders before and
  after. With [1, C, 1, 1] it computes in the layout that layers have.
* Slopes per channel that several PReLUs read are not fused into the layers before them; a single
  slope is.
* AveragePool of a picture's few channels is computed in blocks of 16 channels, and reordered into
  them; a depthwise Conv with equal weights is not.
* HardSigmoid runs in a reference kernel, one value at a time. alpha x + beta, clipped to [0, 1], is
  the same.
* SiLU, x sigmoid(x), is fused into the layer before it. In an integer Conv with a kernel larger
  than 1x1 that takes longer on machines with AMX than the Conv and a loop of its own for SiLU. With
  h = x / 2 it is h tanh(h) + h, which is not fused. Which is faster depends on the machine and the
  network, so a measurement decides (`compress.quantize.timed_forms`); with kernels for AVX2 it is
  never faster (`benchmarks/silu_forms.py`).

Channels that come last are a module of their own (`channels_first`), and so are GroupNorm
(`group_norms`), what OpenVINO does not take (`wrapped_pads`, `partial_gathers`, `covering_pools`,
`softmax_ranks`), and what it gets wrong in float too (`missed_axes`), behind integers
(`flat_gathers`, `last_channels`, `tiny_biases`, `pooled_activations`, `padded_means`) or beside
them (`turned_products`).
"""

from collections.abc import Callable, Collection
from functools import partial

import numpy as np
import onnx
from onnx import helper

from artifacts.openvino_ranks import BROADCASTING, changes_layout
from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.attention import put_masks_first
from compress.quantize.placement.channels_first import write_channels_first
from compress.quantize.placement.covering_pools import write_covering_pools
from compress.quantize.placement.flat_gathers import write_flat_gathers
from compress.quantize.placement.last_channels import guard_last_channels
from compress.quantize.placement.missed_axes import write_missed_axes
from compress.quantize.placement.node_writing import NodeWriter, replace_nodes
from compress.quantize.placement.padded_means import guard_padded_means
from compress.quantize.placement.partial_gathers import write_partial_gathers
from compress.quantize.placement.pooled_activations import guard_pooled_activations
from compress.quantize.placement.softmax_ranks import write_softmax_ranks
from compress.quantize.placement.tiny_biases import add_tiny_biases
from compress.quantize.placement.turned_products import guard_turned_products
from compress.quantize.placement.wrapped_pads import write_wrapped_pads

FEW_CHANNELS = 4
"""A picture's, at most."""


def write_forms(graph: Graph) -> list[str]:
    """Rewrites operators of a float network in place; returns a line for each kind of change."""
    return _write_all(
        graph,
        {
            "gave constants per channel the rank of the other operand": align_constants,
            "wrote HardSigmoid as Clip": clip_hard_sigmoids,
            "wrote with the channels first, without": write_channels_first,
            "wrote as Slices and a Concat": write_wrapped_pads,
            "wrote as OpenVINO compiles it": write_partial_gathers,
            "wrote as GlobalAveragePool": write_covering_pools,
            "gave the rank of what it is multiplied with": write_softmax_ranks,
        },
    )


def write_shared_forms(
    graph: Graph, *, has_integer_attention: bool, has_integer_inputs: bool
) -> list[str]:
    """The same with what OpenVINO would get wrong beside integers, as every runtime takes it.

    Args:
        graph: in float.
        has_integer_attention: whether products of two computed matrices are in integers.
        has_integer_inputs: whether layers multiply integers of 8 bits, both of them.
    """
    guard_products = partial(guard_turned_products, has_integer_inputs=has_integer_inputs)
    masks = {"made masks the first operands": put_masks_first} if has_integer_attention else {}
    return _write_all(
        graph,
        {
            **masks,
            "wrote as sums over the axes that OpenVINO reads": write_missed_axes,
            "wrote with indices in a row": write_flat_gathers,
            "guarded from OpenVINO what it reads": guard_last_channels,
            "gave a tiny bias": add_tiny_biases,
            "guarded from OpenVINO what it pools": guard_pooled_activations,
            "guarded from OpenVINO the border of": guard_padded_means,
            "guarded from OpenVINO what stands beside": guard_products,
        },
    )


def _write_all(graph: Graph, forms: dict[str, Callable[[Graph], list[str]]]) -> list[str]:
    done = {what: form(graph) for what, form in forms.items()}
    graph.drop_unused_weights()
    return [f"{what}: {', '.join(names)}" for what, names in done.items() if names]


def align_constants(graph: Graph) -> list[str]:
    """Gives constants per channel the rank of the other operand, and each PReLU its own slope.

    Returns:
        the names of the changed nodes.
    """
    changed = []
    for node in graph.nodes:
        if node.op_type not in BROADCASTING or len(node.input) != 2:
            continue
        for position, other in ((0, 1), (1, 0)):
            name, rank = node.input[position], len(graph.shapes.get(node.input[other], ()))
            value = graph.weights.get(name)
            if value is None or value.size == 1 or value.ndim > rank:
                continue
            is_shared = node.op_type == "PRelu" and len(graph.consumers(name)) > 1
            if changes_layout(value.shape, rank) or is_shared:
                own = graph.unused_name(f"{node.name}_{name}")
                graph.weights[own] = value.reshape((1,) * (rank - value.ndim) + value.shape)
                node.input[position] = own
                changed.append(node.name)
    graph.index()
    return changed


def clip_hard_sigmoids(graph: Graph) -> list[str]:
    """Writes HardSigmoid as Clip(alpha x + beta, 0, 1); returns the names of the nodes."""

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if node.op_type != "HardSigmoid" or node.input[0] not in graph.float32:
            return None
        alpha, beta = (attribute(node, *item) for item in (("alpha", 0.2), ("beta", 0.5)))
        writer = NodeWriter(graph, node.output[0])
        line = writer.write("Add", writer.write("Mul", node.input[0], alpha), beta)
        writer.write("Clip", line, 0.0, 1.0)
        return writer.finish()

    return replace_nodes(graph, write)


def convolve_pools(graph: Graph) -> list[str]:
    """Writes AveragePool of few channels as a depthwise Conv; returns the names of the nodes.

    It stays in float, so this comes after layers were chosen for integers.
    """

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if node.op_type != "AveragePool" or not _is_plain_pool(graph, node):
            return None
        channels = graph.shapes[node.input[0]][1]
        kernel = attribute(node, "kernel_shape", None)
        name = graph.unused_name(f"{node.name}_weight")
        graph.weights[name] = np.full((channels, 1, *kernel), 1 / np.prod(kernel), np.float32)
        window = {key: attribute(node, key, None) for key in ("kernel_shape", "strides", "pads")}
        given = {key: value for key, value in window.items() if value is not None}
        inputs, output = [node.input[0], name], node.output[0]
        return [helper.make_node("Conv", inputs, [output], node.name, group=channels, **given)]

    return replace_nodes(graph, write)


def _is_plain_pool(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether all windows of a pool average as many values, of few channels in float32."""
    shape = graph.shapes.get(node.input[0], ())
    is_padded = any(attribute(node, "pads", ())) and not attribute(node, "count_include_pad", 0)
    is_moved = attribute(node, "auto_pad", b"NOTSET") != b"NOTSET"
    is_uneven = is_padded or is_moved or attribute(node, "ceil_mode", 0)
    is_dilated = any(step != 1 for step in attribute(node, "dilations", ()))
    is_few = len(shape) == 4 and 1 <= shape[1] <= FEW_CHANNELS
    return is_few and not (is_uneven or is_dilated) and node.input[0] in graph.float32


def write_swish_by_tanh(graph: Graph, layers: Collection[str]) -> list[str]:
    """Writes SiLUs behind some layers as h tanh(h) + h with h = x / 2.

    Args:
        graph: in float; it is changed, its results stay as they are, up to rounding.
        layers: names of the layers that will compute in integers.

    Returns:
        the names of the products x sigmoid(x).
    """
    swishes = {product.name: gate for product, gate in find_swishes(graph, layers)}
    gates = {gate.name for gate in swishes.values()}

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if node.name in gates:
            return []
        if node.name not in swishes:
            return None
        writer = NodeWriter(graph, node.output[0])
        half = writer.write("Mul", swishes[node.name].input[0], 0.5)
        writer.write("Add", writer.write("Mul", writer.write("Tanh", half), half), half)
        return writer.finish()

    return [name for name in replace_nodes(graph, write) if name not in gates]


def find_swishes(
    graph: Graph, layers: Collection[str]
) -> list[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """Returns the products x sigmoid(x) behind spatial ones of `layers`, each with its Sigmoid."""
    found = []
    for gate in graph.nodes:
        layer = graph.producer(gate.input[0]) if gate.op_type == "Sigmoid" else None
        if layer is None or layer.name not in layers or not _is_spatial(graph, layer):
            continue
        product = graph.sole_consumer(gate.output[0])
        operands = {gate.input[0], gate.output[0]}
        if product is not None and product.op_type == "Mul" and set(product.input) == operands:
            found.append((product, gate))
    return found


def _is_spatial(graph: Graph, layer: onnx.NodeProto) -> bool:
    """Whether a node is a Conv in float32 that is not depthwise, with a kernel larger than 1."""
    if layer.op_type != "Conv" or layer.output[0] not in graph.float32:
        return False
    weight = graph.weights.get(layer.input[1])
    return weight is not None and weight.shape[1] > 1 and max(weight.shape[2:]) > 1
