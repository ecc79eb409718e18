"""Parts that are cut out of what was just joined, read from the tensor they come from.

A detector that answers all its maps in one tensor cuts them apart again where it decodes boxes
(`output[:, :20]` of CenterNet is its heatmap). As long as all maps go through one Concat, each
depends on what the others do: on the comparison that finds peaks, on one scale, on FP16 or none.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from artifacts.graph_reading import attribute, read_tensors, unused_name

CUTTERS = frozenset({"Gather", "Slice", "Split"})

Shape = tuple[int, ...]
Weights = Mapping[str, NDArray[Any]]
Ranges = Sequence[tuple[int, int]]


@dataclass
class Parted:
    """Nodes in which parts of Concats are read from their members.

    Attributes:
        nodes: of the graph, in topological order; Concats that nothing reads any more are gone.
        weights: constants that they read besides those that were there.
        changed: names of the nodes that cut from a member, or are gone since they were one.
    """

    nodes: list[onnx.NodeProto]
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)


def cuts_concats(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether anything is cut out of a Concat: a quick look, before shapes are known."""
    joined: set[str] = set()
    for node in nodes:
        if node.op_type == "Concat":
            joined.update(node.output)
        elif node.op_type in CUTTERS and node.input[0] in joined:
            return True
    return False


def part_concats(
    nodes: Sequence[onnx.NodeProto],
    weights: Weights,
    shapes: Mapping[str, Shape],
    outputs: Collection[str],
) -> Parted | None:
    """Lets each node that cuts a part of one member out of a Concat read that member.

    Args:
        nodes: in topological order; they are not changed.
        weights: the constants that are known.
        shapes: of the tensors whose shape is known.
        outputs: tensors that have to be there afterwards too.

    Returns:
        what is read instead; None where nothing is cut out of a single member.
    """
    if not cuts_concats(nodes):
        return None
    captured = {name for node in nodes for name in read_tensors(node) if name not in node.input}
    taken = {name for node in nodes for name in (node.name, *node.output)}
    parter = _Parter(weights, shapes, captured.union(outputs), taken.union(weights, shapes))
    for node in nodes:
        parter.read(node)
    if not parter.result.changed:
        return None
    parter.result.nodes = _without_unread(parter.result.nodes, parter.freed, outputs)
    return parter.result


def _without_unread(
    nodes: Sequence[onnx.NodeProto], freed: Collection[str], outputs: Iterable[str]
) -> list[onnx.NodeProto]:
    """Returns the nodes without those that made a tensor from which something was cut."""
    read = {name for node in nodes for name in read_tensors(node)}.union(outputs)
    return [
        node for node in nodes if node.output[0] not in freed or not read.isdisjoint(node.output)
    ]


@dataclass(frozen=True)
class _Joined:
    """A Concat of known members.

    Attributes:
        axis: along which it joins, from 0.
        rank: how many axes its tensor has.
        members: the name of each, where it begins along the axis, and before what it ends.
    """

    axis: int
    rank: int
    members: tuple[tuple[str, int, int], ...]

    @property
    def length(self) -> int:
        """How long the tensor is along the axis."""
        return self.members[-1][2]

    def find(self, start: int, stop: int) -> "_Part | None":
        """Returns the places from `start` to before `stop` as part of a member, if of one alone."""
        for name, begin, end in self.members:
            if begin <= start < stop <= end:
                return _Part(name, start - begin, stop - begin, (start, stop) == (begin, end))
        return None


@dataclass(frozen=True)
class _Part:
    """A part of a tensor along an axis; whether it is all of it."""

    tensor: str
    start: int
    stop: int
    is_whole: bool


class _Parter:
    """Writes nodes anew, one by one.

    Attributes:
        result: what is written so far.
        freed: Concats from which something is not cut any more.

    Args:
        weights: the constants that are known.
        shapes: of the tensors whose shape is known.
        named: tensors that keep their names.
        taken: names that are in use.
    """

    def __init__(
        self, weights: Weights, shapes: Mapping[str, Shape], named: set[str], taken: set[str]
    ) -> None:
        self.result = Parted([])
        self.freed: set[str] = set()
        self._weights = weights
        self._shapes = shapes
        self._named = named
        self._taken = taken
        self._joined: dict[str, _Joined] = {}
        self._other_names: dict[str, str] = {}

    def read(self, node: onnx.NodeProto) -> None:
        """Adds a node, or what it is once it reads a member."""
        if not self._other_names.keys().isdisjoint(node.input):
            node = _reading(node, [self._other_names.get(name, name) for name in node.input])
        if node.op_type == "Concat":
            self._learn(node)
        joined = self._joined.get(node.input[0]) if node.op_type in CUTTERS else None
        ranges = _RANGES[node.op_type](node, joined, self._weights) if joined else []
        parts = [joined.find(start, stop) for start, stop in ranges] if joined else []
        found = [part for part in parts if part is not None]
        if joined is None or not found or len(found) < len(parts):
            self.result.nodes.append(node)
            return
        self.freed.add(node.input[0])
        self.result.changed.append(node.name)
        if node.op_type == "Gather":
            place = np.full_like(self._weights[node.input[1]], found[0].start)
            held = self._keep(node.output[0], place)
            self.result.nodes.append(_reading(node, [found[0].tensor, held]))
            return
        for output, part in zip(node.output, found, strict=True):
            self._write(output, part, joined.axis)

    def _learn(self, node: onnx.NodeProto) -> None:
        """Remembers what a Concat joins, where the shape of each member is known."""
        shapes = [shape for name in node.input if (shape := self._shape(name)) is not None]
        if len(shapes) == len(node.input):
            rank = len(shapes[0])
            axis = attribute(node, "axis", 0) % rank
            bounds = pairwise(accumulate((shape[axis] for shape in shapes), initial=0))
            members = zip(node.input, bounds, strict=True)
            self._joined[node.output[0]] = _Joined(
                axis, rank, tuple((name, *places) for name, places in members)
            )

    def _shape(self, tensor: str) -> Shape | None:
        constant = self._weights.get(tensor)
        return self._shapes.get(tensor) if constant is None else constant.shape

    def _write(self, output: str, part: _Part, axis: int) -> None:
        """Makes a part of a member under a name, or lets a whole one be read where it is."""
        if not part.is_whole:
            bounds = ([part.start], [part.stop], [axis])
            held = [self._keep(output, np.array(item, np.int64)) for item in bounds]
            self._add("Slice", [part.tensor, *held], output)
        elif output in self._named:
            self._add("Identity", [part.tensor], output)
        else:
            self._other_names[output] = part.tensor

    def _add(self, kind: str, inputs: Sequence[str], output: str) -> None:
        name = self._unused(f"{output}_part")
        self.result.nodes.append(helper.make_node(kind, inputs, [output], name))

    def _keep(self, stem: str, value: NDArray[Any]) -> str:
        name = self._unused(f"{stem}_place")
        self.result.weights[name] = value
        return name

    def _unused(self, stem: str) -> str:
        name = unused_name(stem, self._taken)
        self._taken.add(name)
        return name


def _reading(node: onnx.NodeProto, inputs: Sequence[str]) -> onnx.NodeProto:
    twin = onnx.NodeProto()
    twin.CopyFrom(node)
    twin.input[:] = inputs
    return twin


def _read_slice(node: onnx.NodeProto, joined: _Joined, weights: Weights) -> Ranges:
    given = [item for name in node.input[1:] if (item := weights.get(name)) is not None]
    if len(given) < 3 or len(given) + 1 != len(node.input) or any(item.size != 1 for item in given):
        return []
    start, stop, axis, *steps = (int(item[0]) for item in given)
    if axis % joined.rank != joined.axis or steps not in ([], [1]):
        return []
    return [slice(start, stop).indices(joined.length)[:2]]


def _read_split(node: onnx.NodeProto, joined: _Joined, weights: Weights) -> Ranges:
    if attribute(node, "axis", 0) % joined.rank != joined.axis:
        return []
    count = len(node.output)
    sizes = attribute(node, "split", [joined.length // count] * count)
    if len(node.input) > 1:
        sizes = weights.get(node.input[1], [])
    bounds = list(pairwise(accumulate(map(int, sizes), initial=0)))
    return bounds if bounds and bounds[-1][1] == joined.length else []


def _read_gather(node: onnx.NodeProto, joined: _Joined, weights: Weights) -> Ranges:
    place = weights.get(node.input[1])
    if place is None or place.size != 1 or attribute(node, "axis", 0) % joined.rank != joined.axis:
        return []
    start = int(place.flat[0]) % joined.length
    return [(start, start + 1)]


_RANGES: dict[str, Callable[[onnx.NodeProto, _Joined, Weights], Ranges]] = {
    "Gather": _read_gather,
    "Slice": _read_slice,
    "Split": _read_split,
}
"""Where along the Concat's axis each output of a cutting node lies; nothing where it cuts another
axis, or where that is not known beforehand."""
