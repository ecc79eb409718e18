"""What a placement is: which edges of a graph get a Q/DQ pair, for one runtime."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from compress.quantize.graph import Graph
from compress.quantize.qparams import IntegerGrid


@dataclass(frozen=True, kw_only=True)
class QuantizedNode:
    """A node that shall compute in integers.

    Attributes:
        node: its name.
        activations: positions of the inputs that get a Q/DQ pair.
        weight: position of the constant input that is stored as integers; None if it has none.
        weight_axis: the weight's output channel axis (per-channel scales).
        output_axis: the channel axis of the node's output.
        tied: label of the tensors that share one scale and zero_point with this node's data inputs
            and outputs, because the node only moves values; empty for a node that computes.
        integer_bias: whether its bias is stored as int32, at the product of the input's and the
            weight's scale.
    """

    node: str
    activations: tuple[int, ...]
    weight: int | None = None
    weight_axis: int = 0
    output_axis: int = 1
    tied: str = ""
    integer_bias: bool = False


def find_read(graph: Graph, quantized: Iterable[QuantizedNode]) -> frozenset[str]:
    """Returns the tensors that these nodes read in integers, constants apart."""
    nodes = {node.name: node for node in graph.nodes}
    return frozenset(nodes[item.node].input[at] for item in quantized for at in item.activations)


@dataclass(frozen=True, kw_only=True)
class Declined:
    """A node that was looked at and stays in float.

    Attributes:
        node: its name.
        reason: why.
    """

    node: str
    reason: str


def leave_in_float(
    quantized: Sequence[QuantizedNode], names: Collection[str], reason: str
) -> tuple[list[QuantizedNode], list[Declined]]:
    """Returns the nodes without those of these names, and these with the reason."""
    kept = [item for item in quantized if item.node not in names]
    left = [Declined(node=item.node, reason=reason) for item in quantized if item.node in names]
    return kept, left


class Placement(Protocol):
    """Where a runtime wants Q/DQ pairs, and which integers it computes with."""

    @property
    def symmetric(self) -> bool:
        """Whether activations have their zero_point in the middle of the grid."""
        ...

    @property
    def fuses_products(self) -> bool:
        """Whether a product with a constant per channel behind an activation costs little time."""
        ...

    def place(
        self, graph: Graph, keep_float: frozenset[str] = frozenset()
    ) -> tuple[list[QuantizedNode], list[Declined]]:
        """Returns the nodes to quantize in topological order, and those that were declined."""
        ...

    def activation_grid(self, low: float) -> IntegerGrid:
        """Returns the grid of an activation whose smallest value is `low`."""
        ...

    def find_plain_inputs(self, graph: Graph, item: QuantizedNode) -> tuple[int, ...]:
        """Returns the positions of the inputs that a node's kernel takes without zero points only.

        What is negative there may be read by no kernel that takes zero points.
        """
        ...

    def find_spared(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> frozenset[str]:
        """Finds the tensors that do without zero points, for the sake of their readers."""
        ...

    def find_signed(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> frozenset[str]:
        """Finds the spared tensors that have to be signed even if no value is negative."""
        ...

    def find_passed(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> frozenset[str]:
        """Finds the tensors that integers reach without a Q/DQ pair, through nodes that move them.

        Their pairs would change no value.
        """
        ...

    def without_zero_points(self) -> "Placement":
        """Returns the placement whose integers are those of the spared tensors."""
        ...

    def write_forms(self, graph: Graph) -> list[str]:
        """Writes operators in place as the runtime's kernels want them; returns a line for each."""
        ...

    def write_rescaled_forms(self, graph: Graph) -> list[str]:
        """Does as `write_forms` where channels have been rescaled already."""
        ...

    def write_late_forms(self, graph: Graph, layers: Collection[str]) -> None:
        """Writes in place what kernels want once the layers in integers are known; () is float."""
        ...
