"""Activations that are seldom negative, moved so that symmetric integers use all of their values.

With zero_point 0, the output of a ReLU uses 128 of int8's 256 values. So it is stored less half of
its range: the layer before it subtracts that in its bias, the ReLU becomes a Clip at minus as much,
and every layer that reads it gives back in its bias what it now lacks. In float the network
computes the same; in integers the step is half as wide, and kernels have no zero point to know of.
What SiLU, GELU or hard-swish write has a Sub behind it instead, for the kernel that computes them.

A layer that pads cannot read such a tensor: its zeros would be values from the middle of the range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Graph, attribute
from compress.quantize.layer_weights import to_rows
from compress.quantize.observers import Observer
from compress.quantize.placement import Placement, QuantizedNode, find_read
from compress.quantize.placement.movement import moved_inputs
from compress.quantize.qparams import IntegerGrid
from compress.quantize.repairs.biases import Bias, find_bias, find_layer_bias
from compress.quantize.survey import Survey, observe_surveyed

UNSIGNED = IntegerGrid(bits=8, is_signed=False)
BELOW, ABOVE = 128, 127
"""Steps from 0 to the lowest integer, and to the highest."""
LEAST_GAIN = 1.1
"""So many times as wide the step would else have to be."""
CLAMPS = ("Relu", "Clip")
POINTWISE = frozenset(
    {
        *("Div", "Elu", "Gelu", "HardSigmoid", "HardSwish"),
        *("Mish", "Mul", "Sigmoid", "Softplus", "Swish"),
    }
)
"""Operators whose kernel may as well subtract a constant."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """Tensors that hold the same values in other places, or side by side, and who deals with them.

    Attributes:
        tensors: their names.
        clamps: names of the Relu and Clip nodes that compute them, with the biases of their inputs.
        others: names of the other nodes that compute them.
        products: names of the layers that multiply them with constant weights, and their biases.
        sums: biases of what they are added to.
    """

    tensors: list[str] = field(default_factory=list)
    clamps: dict[str, Bias] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    products: list[tuple[str, Bias]] = field(default_factory=list)
    sums: list[Bias] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class CenteredRange:
    """A region that was moved.

    Attributes:
        region: the region.
        offset: what its tensors lack, a float32.
        scale: of their integers; -128 to 127 of these steps are the range.
    """

    region: Region
    offset: float
    scale: float


def center_ranges(
    graph: Graph,
    quantized: Sequence[QuantizedNode],
    survey: Survey,
    observer: Observer,
    placement: Placement,
) -> tuple[CenteredRange, ...]:
    """Moves in place what would have half of its range for values that do not occur.

    Args:
        graph: the simplified float graph; its results stay.
        quantized: what would be quantized, to integers with zero_point 0.
        survey: of the tensors that these nodes read; it learns what they hold now.
        observer: chooses the range of each tensor.
        placement: tells its integers; what is uint8 has no values to spare.

    Returns:
        what was moved.
    """
    finder = _Finder.of(graph, quantized)
    found: list[CenteredRange] = []
    looked_at: set[str] = set()
    for node in list(graph.nodes):
        tensor = next(iter(node.output), "")
        if tensor not in finder.read - looked_at:
            continue
        region = finder.find_region(tensor)
        if region is None:
            continue
        looked_at |= set(region.tensors)
        writers = (*region.clamps, *region.others)
        seen = observe_surveyed([survey[graph.node(name).output[0]] for name in writers])
        low, high = observer.choose_range(seen, UNSIGNED, symmetric=False)
        if not placement.activation_grid(low).is_signed:
            continue
        scale = float(np.float32((high - low) / UNSIGNED.highest))
        if not 0 < LEAST_GAIN * scale < max(-low / BELOW, high / ABOVE):
            continue
        offset = float(np.float32(low + BELOW * scale))
        _move(graph, region, offset)
        for name in region.others:
            _insert_sub(graph, name, offset)
        for name in survey.keys() & set(region.tensors):
            survey[name].move(-offset)
        found.append(CenteredRange(region=region, offset=offset, scale=scale))
    graph.drop_unused_weights()
    return tuple(found)


def describe_centered(ranges: Sequence[CenteredRange]) -> list[str]:
    """Returns a line that names what was moved, if anything was."""
    names = [name for item in ranges for name in item.region.tensors]
    return [f"centered the range of {', '.join(names)}"] if names else []


def uncenter(graph: Graph, ranges: Sequence[CenteredRange]) -> Graph:
    """Returns a graph in which these ranges are where they were."""
    graph = graph.copy()
    for centered in ranges:
        _move(graph, centered.region, -centered.offset)
        for name in centered.region.others:
            _remove_sub(graph, name)
    return graph


@dataclass(frozen=True)
class _Finder:
    """Finds what can be moved.

    Attributes:
        graph: the float graph.
        placed: what would be quantized, by the nodes' names.
        read: the tensors that these nodes read in integers.
    """

    graph: Graph
    placed: Mapping[str, QuantizedNode]
    read: frozenset[str]

    @classmethod
    def of(cls, graph: Graph, quantized: Sequence[QuantizedNode]) -> "_Finder":
        """Opens a graph."""
        return cls(graph, {item.node: item for item in quantized}, find_read(graph, quantized))

    def find_region(self, tensor: str) -> Region | None:
        """Returns where a tensor's values are; None if some node could not deal with a constant."""
        region, waiting = Region(), [tensor]
        while waiting:
            name = waiting.pop()
            if name in region.tensors:
                continue
            region.tensors.append(name)
            before = self._add_writer(region, name)
            behind = self._add_readers(region, name)
            if before is None or behind is None or name in self.graph.outputs:
                return None
            waiting += [*before, *behind]
        return region

    def _add_writer(self, region: Region, tensor: str) -> list[str] | None:
        """Notes what computes a tensor; returns the tensors that its values come from."""
        node = self.graph.producer(tensor)
        if node is None or node.op_type == "Pad":
            return None
        moved = moved_inputs(self.graph, node)
        if moved:
            return [node.input[at] for at in moved]
        if tensor not in self.read:
            return None
        if node.op_type in POINTWISE and node.domain in ("", "ai.onnx"):
            region.others.append(node.name)
            return []
        is_clamp = node.op_type in CLAMPS and _read_bounds(self.graph, node)[:1] == [0.0]
        bias = find_bias(self.graph, node.input[0], self.read) if is_clamp else None
        if bias is None:
            return None
        region.clamps[node.name] = bias
        return []

    def _add_readers(self, region: Region, tensor: str) -> list[str] | None:
        """Notes what reads a tensor; returns the tensors that its values go to."""
        results: list[str] = []
        for reader in self.graph.consumers(tensor):
            if reader.op_type != "Pad" and moved_inputs(self.graph, reader):
                results += [result for result in reader.output if result]
                continue
            if list(reader.input).count(tensor) != 1:
                return None
            total = self._find_sum(reader, tensor)
            if total is not None:
                region.sums.append(total)
                continue
            bias = find_layer_bias(self.graph, reader) if self._is_product(reader, tensor) else None
            if bias is None:
                return None
            region.products.append((reader.name, bias))
        return results

    def _find_sum(self, add: onnx.NodeProto, tensor: str) -> Bias | None:
        if add.op_type != "Add":
            return None
        other = add.input[1 - list(add.input).index(tensor)]
        return find_bias(self.graph, other, self.read) if other not in self.read else None

    def _is_product(self, node: onnx.NodeProto, tensor: str) -> bool:
        """Whether a layer multiplies a tensor, at each position with all of its weights."""
        item = self.placed.get(node.name)
        if item is None or item.weight is None or node.input[0] != tensor:
            return False
        pads = any(attribute(node, "pads", ())) or b"SAME" in attribute(node, "auto_pad", b"")
        return node.op_type in ("Gemm", "MatMul") or (node.op_type == "Conv" and not pads)


def _read_bounds(graph: Graph, node: onnx.NodeProto) -> list[float]:
    """Returns what a Relu or Clip keeps values between; nothing where that is computed.

    Converters write bounds with one axis, too, which runtimes accept.
    """
    if node.op_type == "Relu":
        return [0.0]
    values = [graph.weights.get(name) for name in node.input[1:]]
    bounds = [float(value.item()) for value in values if value is not None and value.size == 1]
    return bounds if len(bounds) == len(values) else []


def _move(graph: Graph, region: Region, offset: float) -> None:
    """Lowers what is clamped by a constant, and lets what reads the region give it back."""
    for name, bias in region.clamps.items():
        bias.add(graph, -offset)
        node = graph.node(name)
        _set_bounds(graph, node, [bound - offset for bound in _read_bounds(graph, node)])
    for name, bias in region.products:
        layer = graph.node(name)
        axis = 1 if layer.op_type == "MatMul" else 0
        bias.add(graph, offset * to_rows(graph.weights[layer.input[1]], axis).sum(axis=1))
    for bias in region.sums:
        bias.add(graph, offset)


def _set_bounds(graph: Graph, node: onnx.NodeProto, bounds: Sequence[float]) -> None:
    kind, names = ("Relu", []) if list(bounds) == [0.0] else ("Clip", list[str]())
    for bound in bounds if kind == "Clip" else ():
        names.append(graph.unused_name(f"{node.name}_bound"))
        graph.weights[names[-1]] = np.asarray(bound, np.float32)
    node.CopyFrom(helper.make_node(kind, [node.input[0], *names], list(node.output), node.name))
    graph.index()


def _insert_sub(graph: Graph, name: str, offset: float) -> None:
    node = graph.node(name)
    result, plain = node.output[0], graph.unused_name(f"{node.output[0]}_uncentered")
    constant = graph.unused_name(f"{name}_offset")
    graph.weights[constant] = np.asarray(offset, np.float32)
    node.output[0] = plain
    sub = helper.make_node(
        "Sub", [plain, constant], [result], graph.unused_name(f"{name}_centered")
    )
    place = next(at for at, item in enumerate(graph.nodes) if item.name == name)
    graph.insert(place + 1, sub)


def _remove_sub(graph: Graph, name: str) -> None:
    node = graph.node(name)
    (sub,) = graph.consumers(node.output[0])
    node.output[0] = sub.output[0]
    graph.remove([sub.name])
