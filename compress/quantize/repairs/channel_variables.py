"""Which channels of which tensors have one factor in common: a variable per channel.

Dividing the channel that an activation or a layer writes goes on through everything that is
positively homogeneous and keeps channels apart: a Concat puts the channels of its members side by
side, a Split takes them apart, an Add has the same factor on both sides. What only moves values
(the shuffle of a ShuffleNet, the Reshape and Transpose of a pixel shuffle) is followed value by
value, until a picture comes of it again. So each channel of each tensor is one of few variables,
and layers read them by their tensors. What would notice one pins it to 1.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray

from artifacts.graph_reading import read_tensors
from compress.quantize.executor import Subgraph
from compress.quantize.graph import Graph, attribute
from compress.quantize.placement.movement import MOVING, moved_inputs
from compress.quantize.placement.reductions import find_unscalable
from compress.quantize.repairs.channel_scales import READERS
from compress.quantize.repairs.linear_group import find_linear_groups
from compress.quantize.repairs.scale_group import LAYERS, is_homogeneous, writes_by_constants

Variables = NDArray[np.intp]
MOST_MOVED = 1 << 22
"""Values of a tensor that are followed one by one: beyond, its variables are pinned."""


@dataclass
class ChannelVariables:
    """The variables of a graph's pictures, [N, C, ...].

    Attributes:
        of: by tensor, [C], the variable of each channel.
        makers: the tensors that a product may be put behind, in topological order.
        writers: by the name of a layer or norm with a weight of its own, the tensor that it writes.
        readers: by the name of a layer with constant weights, the tensor whose channels it sums up.
        joins: the variables that a Concat, a Split or a movement passes on.
        sums: those that an Add passes on.
    """

    of: dict[str, Variables] = field(default_factory=dict)
    makers: list[str] = field(default_factory=list)
    writers: dict[str, str] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    joins: set[int] = field(default_factory=set)
    sums: set[int] = field(default_factory=set)
    _moved: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    _parents: list[int] = field(default_factory=list)
    _pinned: set[int] = field(default_factory=set)
    _unscalable: set[str] = field(default_factory=set)

    @classmethod
    def follow(cls, graph: Graph) -> "ChannelVariables":
        """Returns the variables of a graph whose shapes are known."""
        found = cls()
        found._unscalable = find_unscalable(graph)
        for node in graph.nodes:
            found._follow(graph, node)
        found._pin([*graph.outputs, *(group.tensor for group in find_linear_groups(graph))])
        found._resolve()
        return found

    @property
    def count(self) -> int:
        """More than the largest variable."""
        return len(self._parents)

    @property
    def pinned(self) -> frozenset[int]:
        """The variables that are 1."""
        return frozenset(self._pinned)

    def _follow(self, graph: Graph, node: onnx.NodeProto) -> None:
        output = node.output[0]
        channels = _count_channels(graph, output)
        if node.op_type in LAYERS and all(name in graph.weights for name in node.input[1:] if name):
            self._sum_up(graph, node)
        elif channels and channels == _passes_channels(graph, node):
            self.of[output] = self._known(graph, node.input[0])
        elif channels and _joins_channels(graph, node):
            self.of[output] = np.concatenate([self._known(graph, name) for name in node.input])
            self.joins |= set(self.of[output].tolist())
        elif channels and _splits_channels(graph, node):
            whole, start = self._known(graph, node.input[0]), 0
            for name in node.output:
                size = _count_channels(graph, name)
                self.of[name] = whole[start : start + size]
                start += size
            self.joins |= set(whole.tolist())
        elif channels and _adds_alike(graph, node):
            one, other = (self._known(graph, name) for name in node.input)
            for first, second in zip(one.tolist(), other.tolist(), strict=True):
                self._join(first, second)
            self.of[output] = one
            self.sums |= set(one.tolist())
        elif channels and writes_by_constants(graph, node):
            self._normalize(node, channels)
        elif not self._move(graph, node):
            self._compute(graph, node)

    def _sum_up(self, graph: Graph, layer: onnx.NodeProto) -> None:
        """Lets a layer read a tensor's variables and write ones of its own."""
        self.readers[layer.name] = layer.input[0]
        self._known(graph, layer.input[0])
        output = layer.output[0]
        channels = _count_channels(graph, output)
        is_writer = channels > 0 and len(graph.consumers(layer.input[1])) == 1
        self._open(output, channels, is_free=is_writer)
        if is_writer:
            self.writers[layer.name] = output

    def _normalize(self, node: onnx.NodeProto, channels: int) -> None:
        """Pins what a norm reads; what it writes has variables of its own."""
        self._pin(read_tensors(node))
        self._open(node.output[0], channels, is_free=True)
        self.writers[node.name] = node.output[0]

    def _compute(self, graph: Graph, node: onnx.NodeProto) -> None:
        """Pins what a node reads that would notice factors; a product may go behind it."""
        self._pin(read_tensors(node))
        can_be_scaled = node.op_type not in MOVING | READERS and len(node.output) == 1
        is_maker = can_be_scaled and node.output[0] not in self._unscalable
        for name in filter(None, node.output):
            channels = _count_channels(graph, name)
            self._open(name, channels, is_free=is_maker)
            if is_maker and channels:
                self.makers.append(name)

    def _known(self, graph: Graph, tensor: str) -> Variables:
        """Returns a tensor's variables; what the network is given has pinned ones.

        Values that were moved into one channel have the same factor from here on.
        """
        if tensor not in self.of and tensor in self._moved:
            channels = np.moveaxis(self._moved[tensor], 1, 0)
            held = channels.reshape(len(channels), -1).astype(np.intp)
            self.of[tensor] = held.min(axis=1)
            pairs = np.unique(self.of[tensor][:, None] * self.count + held)
            for pair in pairs.tolist():
                self._join(pair % self.count, pair // self.count)
        if tensor not in self.of:
            self._open(tensor, _count_channels(graph, tensor), is_free=False)
        return self.of[tensor]

    def _move(self, graph: Graph, node: onnx.NodeProto) -> bool:
        """Follows the values of a tensor that a node only moves; False of any other node."""
        tensor = node.input[0] if node.input else ""
        shape = graph.shapes.get(tensor, ())
        if moved_inputs(graph, node) != (0,) or not 0 < np.prod(shape, dtype=float) <= MOST_MOVED:
            return False
        if tensor not in self._moved and not _count_channels(graph, tensor):
            return False
        before = self._moved.get(tensor)
        if before is None:
            channels = self._known(graph, tensor).reshape(-1, *[1] * (len(shape) - 2))
            before = np.broadcast_to(channels.astype(np.int32), shape)
        variables = set(np.unique(before).tolist())
        if variables <= self._pinned:
            return False
        feeds = {tensor: before.astype(np.float32)}
        outputs = [name for name in node.output if name]
        moved = Subgraph(graph, [node], graph.weights, feeds, outputs, is_exact=True).run(feeds)
        self._moved |= {name: value.astype(np.int32) for name, value in moved.items()}
        self.joins |= variables
        return True

    def _open(self, tensor: str, channels: int, *, is_free: bool) -> None:
        """Gives a tensor variables of its own."""
        first = len(self._parents)
        self._parents += range(first, first + channels)
        self.of[tensor] = np.arange(first, first + channels)
        if not is_free:
            self._pinned |= set(range(first, first + channels))

    def _pin(self, tensors: Iterable[str]) -> None:
        for name in tensors:
            for held in (self.of, self._moved):
                self._pinned |= set(np.unique(held[name]).tolist()) if name in held else set()

    def _join(self, one: int, other: int) -> None:
        """Gives two variables the same factor."""
        self._parents[self._root(one)] = self._root(other)

    def _root(self, variable: int) -> int:
        while self._parents[variable] != variable:
            self._parents[variable] = self._parents[self._parents[variable]]
            variable = self._parents[variable]
        return variable

    def _resolve(self) -> None:
        """Replaces variables by one of those that they have to equal."""
        roots = np.array([self._root(item) for item in range(len(self._parents))], np.intp)
        self.of = {name: roots[items] for name, items in self.of.items()}
        self._pinned = set(roots[list(self._pinned)].tolist())
        self.joins = set(roots[list(self.joins)].tolist())
        self.sums = set(roots[list(self.sums)].tolist())

    def components(self, tensors: Iterable[str] | None = None) -> Iterator["Component"]:
        """Yields the free variables that share tensors, with the layers that read them.

        Args:
            tensors: whose variables belong together; those that layers read if None.
        """
        parents = {item: item for items in self.of.values() for item in items.tolist()}

        def root(item: int) -> int:
            while parents[item] != item:
                item = parents[item]
            return item

        free = {name: set(items.tolist()) - self._pinned for name, items in self.of.items()}
        for tensor in self.readers.values() if tensors is None else tensors:
            shared = sorted(free[tensor])
            for other in shared[1:]:
                parents[root(other)] = root(shared[0])
        members: dict[int, set[int]] = {}
        for item in set().union(*free.values()):
            members.setdefault(root(item), set()).add(item)
        for items in members.values():
            readers = [name for name, tensor in self.readers.items() if free[tensor] & items]
            makers = [name for name in self.makers if free[name] & items]
            writers = [name for name, tensor in self.writers.items() if free[tensor] & items]
            if readers and (makers or writers):
                yield Component(
                    variables=frozenset(items), makers=makers, writers=writers, readers=readers
                )


@dataclass(frozen=True, kw_only=True)
class Component:
    """Variables whose factors are chosen together.

    Attributes:
        variables: they.
        makers: the tensors behind which they need a product.
        writers: names of the layers whose own weights take them up.
        readers: names of the layers that read them.
    """

    variables: frozenset[int]
    makers: list[str]
    writers: list[str]
    readers: list[str]


def _count_channels(graph: Graph, tensor: str) -> int:
    """Returns the channels of a picture; 0 of what is none, or has an unknown shape."""
    shape = graph.shapes.get(tensor, ())
    return shape[1] if len(shape) > 2 and tensor not in graph.weights else 0


def _passes_channels(graph: Graph, node: onnx.NodeProto) -> int:
    """Returns how many channels a node passes factors of on; 0 of others."""
    passes = node.op_type == "Identity" or is_homogeneous(graph, node)
    return _count_channels(graph, node.input[0]) if passes else 0


def _joins_channels(graph: Graph, node: onnx.NodeProto) -> bool:
    rank = len(graph.shapes[node.output[0]])
    return (
        node.op_type == "Concat"
        and attribute(node, "axis", 1) in (1, 1 - rank)
        and all(_count_channels(graph, name) for name in node.input)
    )


def _splits_channels(graph: Graph, node: onnx.NodeProto) -> bool:
    if node.op_type != "Split":
        return False
    rank = len(graph.shapes[node.output[0]])
    sizes = [_count_channels(graph, name) for name in node.output]
    return (
        attribute(node, "axis", 0) in (1, 1 - rank)
        and all(sizes)
        and sum(sizes) == _count_channels(graph, node.input[0])
    )


def _adds_alike(graph: Graph, node: onnx.NodeProto) -> bool:
    if node.op_type != "Add" or node.input[0] == node.input[1]:
        return False
    counts = {_count_channels(graph, name) for name in (*node.input, *node.output)}
    return len(counts) == 1
