"""A part of placements for runtimes whose kernels all take the same integers."""

from collections.abc import Sequence
from typing import Self

from compress.quantize.graph import Graph
from compress.quantize.placement.contract import QuantizedNode


class UniformIntegers:
    """No tensor does without what the others have, see `Placement`."""

    def find_plain_inputs(self, graph: Graph, item: QuantizedNode) -> tuple[int, ...]:
        """Returns nothing: no kernel asks for it."""
        del graph, item
        return ()

    def find_spared(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> frozenset[str]:
        """Returns nothing: all tensors have the same integers."""
        del graph, quantized
        return frozenset()

    def find_signed(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> frozenset[str]:
        """Returns nothing: no kernel asks for it."""
        del graph, quantized
        return frozenset()

    def find_passed(self, graph: Graph, quantized: Sequence[QuantizedNode]) -> frozenset[str]:
        """Returns nothing: the runtime looks for pairs on all sides of what moves integers."""
        del graph, quantized
        return frozenset()

    def without_zero_points(self) -> Self:
        """Returns the same."""
        return self

    def write_rescaled_forms(self, graph: Graph) -> list[str]:
        """Leaves operators as they are."""
        del graph
        return []
