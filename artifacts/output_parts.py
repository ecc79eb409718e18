"""Parts of an output that joins unlike tensors: a detector's boxes in pixels beside its scores.

An error that is small beside the boxes may be all that the scores have, so such parts are measured
by themselves.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from numpy.typing import NDArray

from artifacts.graph_reading import read_static_shapes, typed_values
from artifacts.moved_axes import MOVES, move_axis

Array = NDArray[Any]
Shape = tuple[int, ...]
Span = tuple[int, int, int]
"""An axis, and where a part starts and stops on it."""

HIDDEN_DB = 3.0
"""A part has at least twice the noise of the whole that hides it."""


@dataclass(frozen=True)
class OutputPart:
    """A part of a tensor along one axis.

    Attributes:
        tensor: its name.
        axis: from 0.
        start: the first place on the axis.
        stop: the place behind the last.
    """

    tensor: str
    axis: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The part as it is written in Python, `output0[:, 4:84]`."""
        return f"{self.tensor}[{':, ' * self.axis}{self.start}:{self.stop}]"

    def take(self, value: Array) -> Array:
        """Returns the part of the tensor's value."""
        return value[(slice(None),) * self.axis + (slice(self.start, self.stop),)]


def with_parts(values: Mapping[str, Array], parts: Iterable[OutputPart]) -> dict[str, Array]:
    """Returns tensors by name, and the parts of these under their own names."""
    found = {part.name: part.take(values[part.tensor]) for part in parts if part.tensor in values}
    return {**values, **found}


def part_heads(parts: Iterable[OutputPart]) -> dict[str, tuple[str, ...]]:
    """Returns each part as a head of its own."""
    return {part.name: (part.name,) for part in parts}


def find_hidden(outputs_db: Mapping[str, float], parts_db: Mapping[str, float]) -> dict[str, float]:
    """Returns the SQNR, in dB, of the parts of which that of the whole says nothing.

    Args:
        outputs_db: SQNR by output.
        parts_db: SQNR by the name of a part; those at least 3 dB below their output are hidden, and
            so are parts of other tensors.
    """
    best = {name: outputs_db.get(name.rpartition("[")[0], math.inf) for name in parts_db}
    return {name: db for name, db in parts_db.items() if db <= best[name] - HIDDEN_DB}


def read_output_parts(
    model: onnx.ModelProto, tensors: Sequence[str] | None = None
) -> tuple[OutputPart, ...]:
    """Returns the parts of a model's outputs, see `find_output_parts`.

    Args:
        model: with the shapes of its tensors.
        tensors: to take for its outputs; None for those it has.
    """
    known = [item.name for item in model.graph.output] if tensors is None else tensors
    return find_output_parts(model.graph.node, read_static_shapes(typed_values(model)), known)


def find_output_parts(
    nodes: Sequence[onnx.NodeProto], shapes: Mapping[str, Shape], tensors: Sequence[str]
) -> tuple[OutputPart, ...]:
    """Returns what a last Concat joins in each of some tensors, where it is of unlike kinds.

    A kind is the operator that makes it. Equals (the levels of a pyramid) are no parts; where each
    of them joins the same parts, these are.

    Args:
        nodes: of the network.
        shapes: of its tensors, as far as they are known.
        tensors: those that are looked at; one that is joined in another is measured already.
    """
    reader = _PartReader(nodes, shapes, frozenset(tensors))
    return tuple(OutputPart(name, *span) for name in tensors for span in reader.read(name))


class _PartReader:
    """Follows tensors back to what joins them."""

    def __init__(
        self, nodes: Sequence[onnx.NodeProto], shapes: Mapping[str, Shape], known: frozenset[str]
    ) -> None:
        self._makers = {name: node for node in nodes for name in node.output}
        self._shapes = shapes
        self._known = known

    def read(self, tensor: str) -> tuple[Span, ...]:
        """Returns the parts of a tensor; none where it joins nothing, or a shape is not known."""
        node = self._makers.get(tensor)
        if node is None:
            return ()
        if node.op_type == "Concat":
            return self._read_join(node)
        if node.op_type not in MOVES:
            return ()
        found = self.read(node.input[0])
        before, after = self._shapes.get(node.input[0]), self._shapes.get(node.output[0])
        if before is None or after is None:
            return ()
        places = [
            (move_axis(node, before, after, axis), start, stop) for axis, start, stop in found
        ]
        return tuple((axis, start, stop) for axis, start, stop in places if axis is not None)

    def _read_join(self, node: onnx.NodeProto) -> tuple[Span, ...]:
        shapes = [self._shapes.get(name) for name in node.input]
        if any(shape is None for shape in shapes):
            return ()
        axis = next(item.i for item in node.attribute if item.name == "axis")
        axis += len(shapes[0] or ()) if axis < 0 else 0
        kinds = {self._find_kind(name) for name in node.input} - {None}
        if len(kinds) <= 1:
            inner = {self.read(name) for name in node.input}
            only = inner.pop() if len(inner) == 1 else ()
            return only if all(span[0] != axis for span in only) else ()
        spans, start = [], 0
        for name, shape in zip(node.input, shapes, strict=True):
            stop = start + (shape or ())[axis]
            if self._find_kind(name) is not None and name not in self._known:
                spans.append((axis, start, stop))
            start = stop
        return tuple(spans)

    def _find_kind(self, tensor: str) -> str | None:
        """Returns the operator that makes a tensor; None for a constant or an input."""
        maker = self._makers.get(tensor)
        while maker is not None and maker.op_type in MOVES:
            maker = self._makers.get(maker.input[0])
        return None if maker is None else maker.op_type
