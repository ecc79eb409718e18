"""Outputs that are decisions: labels, ranks, boxes that survived.

One class more or less is no matter of decibels, and one box more or less changes a shape. What
quantization or FP16 does to such outputs is measured at the tensors that the network decides about.
"""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from artifacts.graph_checks import FLOAT_TYPES, node_subgraphs
from artifacts.graph_reading import (
    read_constants,
    read_static_shapes,
    read_tensors,
    typed_values,
)
from artifacts.parted_concats import cuts_concats, part_concats

_DECIDING = frozenset(
    {"ArgMax", "ArgMin", "Compress", "Hardmax", "NonMaxSuppression", "NonZero", "TopK", "Unique"}
)
_CHOOSING = {"NonMaxSuppression": 0, "NonZero": 0, "TopK": 1}
"""Operators that choose places, and which of their outputs names these."""
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
"""These decide where a mask, a count, or another decision comes of it; a Where that goes on with
numbers is none."""
_EXTREMES = frozenset({"GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin"})
_LAYERS = frozenset({"Conv", "ConvTranspose", "GRU", "LSTM", "RNN"})
_PRODUCTS = frozenset({"Gemm", "MatMul"})


@dataclass(frozen=True)
class DecidedOutputs:
    """The end of a network, from its decisions on.

    Attributes:
        nodes: positions of the nodes that decide, and of those that go on from what was decided.
        entering: the tensors that they read of the rest of the network.
        measured: for each decided output, the float tensors among `entering` that it depends on,
            in the order in which they are read.
    """

    nodes: frozenset[int] = frozenset()
    entering: tuple[str, ...] = ()
    measured: dict[str, tuple[str, ...]] = field(default_factory=dict)


def find_measured(model: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """Returns, for each output that depends on a decision, the float tensors decided about."""
    return _find_in(model)[1].measured


def find_choices(model: onnx.ModelProto) -> tuple[str, ...]:
    """Returns the places that are chosen in the middle of a network.

    The queries of RT-DETR, by TopK, or the regions of a detector in two stages, by TopK,
    NonMaxSuppression and NonZero. Near ties among them change places with the least error, or
    fall away, and all that follows with them.
    """
    nodes, found = _find_in(model)
    nodes = [node for at, node in enumerate(nodes) if at not in found.nodes]
    return read_choices(nodes, {item.name for item in model.graph.output})


def has_open_choices(model: onnx.ModelProto) -> bool:
    """Whether how many places are chosen in the middle of a network depends on its inputs."""
    shapes = read_static_shapes(typed_values(model))
    return any(name not in shapes for name in find_choices(model))


def read_choices(nodes: Iterable[onnx.NodeProto], outputs: Collection[str]) -> tuple[str, ...]:
    """Returns the places that are chosen and that are no outputs of the network."""
    chosen = (name for node in nodes for name in list_chosen(node))
    return tuple(name for name in chosen if name and name not in outputs)


def list_chosen(node: onnx.NodeProto) -> list[str]:
    """Returns the places that a node chooses, be it in a branch (no box, no NonMaxSuppression)."""
    if node.op_type in _CHOOSING:
        return [node.output[_CHOOSING[node.op_type]]]
    branches = node_subgraphs(node) if node.op_type == "If" else ()
    chosen = (
        name
        for branch in branches
        if any(list_chosen(inner) for inner in branch.node)
        for name, item in zip(node.output, branch.output, strict=True)
        if item.type.tensor_type.elem_type == onnx.TensorProto.INT64
    )
    return list(dict.fromkeys(chosen))


def pair_choices(choices: Sequence[str], candidate: onnx.ModelProto) -> dict[str, str]:
    """Returns the places that are chosen in a network, each with those in another form of it."""
    theirs = find_choices(candidate)
    return dict(zip(choices, theirs, strict=True)) if len(choices) == len(theirs) else {}


def pin_choices(model: onnx.ModelProto, choices: Sequence[str]) -> onnx.ModelProto:
    """Returns the model with the places that are chosen in it as inputs.

    So it goes on from what another network chose: what near ties change is their order, which
    would count as the error of everything behind them.
    """
    if not choices:
        return model
    pinned = onnx.ModelProto()
    pinned.CopyFrom(model)
    for node in pinned.graph.node:
        node.output[:] = [f"{name}_own" if name in choices else name for name in node.output]
    pinned.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, _shape(model, name))
        for name in choices
    )
    known = [value for value in pinned.graph.value_info if value.name not in choices]
    del pinned.graph.value_info[:]
    pinned.graph.value_info.extend(known)
    return pinned


def _shape(model: onnx.ModelProto, tensor: str) -> list[int | None] | None:
    """Returns a tensor's shape with None for axes of unknown length; None if nothing is known."""
    found = (value for value in model.graph.value_info if value.name == tensor)
    kind = next((value.type.tensor_type for value in found), None)
    if kind is None or not kind.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]


def _find_in(model: onnx.ModelProto) -> tuple[list[onnx.NodeProto], DecidedOutputs]:
    """Returns a model's nodes, parts of Concats read from where they come, and what they decide."""
    outputs = [item.name for item in model.graph.output]
    values = typed_values(model)
    weights = {item.name for item in model.graph.initializer}
    nodes = list(model.graph.node)
    if cuts_concats(nodes):
        parted = part_concats(nodes, _read_places(model), read_static_shapes(values), outputs)
        nodes = parted.nodes if parted else nodes
        weights |= parted.weights.keys() if parted else set()
    return nodes, find_decided_outputs(nodes, outputs, values, weights)


def _read_places(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    """Returns the constants of a model that can say where something is cut: integers."""
    integers = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    return {
        name: numpy_helper.to_array(item)
        for name, item in read_constants(model.graph).items()
        if item.data_type in integers
    }


def find_decided_outputs(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    values: Iterable[onnx.ValueInfoProto],
    weights: Collection[str],
) -> DecidedOutputs:
    """Returns what a network ends with that depends on a decision; often nothing.

    A decision with layers behind it, such as the proposals of a detector in two stages, is not the
    end of a network. Outputs that depend on it are measured as they are.

    Args:
        nodes: in topological order.
        outputs: names of the network's outputs.
        values: types of tensors, as far as they are known.
        weights: names of constants.
    """
    others = {item.name for item in values if item.type.tensor_type.elem_type not in FLOAT_TYPES}
    constants = _find_constants(nodes, weights)
    others |= constants
    before_layers = find_before_layers(nodes, constants.union(weights))
    deciding = _find_deciding(nodes) - before_layers
    before_numbers = _find_before_numbers(nodes, outputs, others, deciding)
    inside: dict[int, list[str]] = {}
    decided: set[str] = set()
    for at, node in enumerate(nodes):
        read = list(read_tensors(node))
        is_number = at in before_numbers or at in before_layers
        compares = node.op_type in _COMPARING and not is_number
        ends = compares or at in deciding
        if ends or not decided.isdisjoint(read):
            inside[at] = read
            decided.update(node.output)
    made = {name for at, node in enumerate(nodes) if at not in inside for name in node.output}
    sources: dict[str, dict[str, None]] = {}
    for at, read in inside.items():
        behind: dict[str, None] = {}
        for name in read:
            behind |= {name: None} if name in made else sources.get(name, {})
        sources |= dict.fromkeys(nodes[at].output, behind)
    measured = {
        output: tuple(name for name in sources[output] if name not in others)
        for output in outputs
        if output in decided
    }
    if not all(measured.values()):
        return DecidedOutputs()
    entering = dict.fromkeys(name for read in inside.values() for name in read if name in made)
    return DecidedOutputs(frozenset(inside), tuple(entering), measured)


def _find_constants(nodes: Sequence[onnx.NodeProto], weights: Container[str]) -> set[str]:
    """Returns the tensors that are computed from constants alone."""
    found: set[str] = set()
    for node in nodes:
        if all(name in weights or name in found for name in read_tensors(node)):
            found.update(node.output)
    return found


def _find_deciding(nodes: Sequence[onnx.NodeProto]) -> set[int]:
    """Returns the positions of the nodes that decide whatever comes of it.

    A comparison of values with the largest among them is one: it finds the peaks of a heatmap.
    """
    extremes: dict[str, set[str]] = {}
    for node in nodes:
        if node.op_type in _EXTREMES:
            extremes.setdefault(node.input[0], set()).add(node.output[0])
    return {
        at
        for at, node in enumerate(nodes)
        if node.op_type in _DECIDING
        or (
            node.op_type in _COMPARING
            and any(not extremes.get(name, set()).isdisjoint(node.input) for name in node.input)
        )
    }


def _find_before_numbers(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    others: Container[str],
    deciding: Container[int],
) -> set[int]:
    """Returns the positions of the nodes that an output in float comes of without a decision."""
    needed = {name for name in outputs if name not in others}
    found = set()
    for at in reversed(range(len(nodes))):
        node = nodes[at]
        if at not in deciding and not needed.isdisjoint(node.output):
            found.add(at)
            needed.update(read_tensors(node))
    return found


def find_before_layers(nodes: Sequence[onnx.NodeProto], weights: Container[str]) -> set[int]:
    """Returns the positions of the nodes on whose results a layer with weights depends."""
    needed: set[str] = set()
    found = set()
    for at in reversed(range(len(nodes))):
        node = nodes[at]
        has_weight = node.op_type in _PRODUCTS and any(name in weights for name in node.input)
        is_needed = not needed.isdisjoint(node.output)
        if is_needed:
            found.add(at)
        if is_needed or has_weight or node.op_type in _LAYERS:
            needed.update(read_tensors(node))
    return found
