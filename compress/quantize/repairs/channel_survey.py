"""What the layers of a float network read, by channel: one forward pass serves all repairs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from compress.quantize.executor import Subgraph
from compress.quantize.graph import Array, Graph
from compress.quantize.side_by_side import map_ahead, threads_each

POSITIONS = 2048
"""That are kept of a tensor, of all samples together."""
AXES = {"Conv": 1, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1}
"""Where layers expect the channels of what they read."""

Factors = NDArray[np.float64]


@dataclass(frozen=True)
class SeenChannels:
    """A tensor at a sample of its positions.

    Attributes:
        values: [C, n] values, as many of each sample, one sample behind the other.
        peaks: [C] largest absolute value over all positions.
    """

    values: NDArray[np.float32]
    peaks: NDArray[np.float32]

    @cached_property
    def power(self) -> NDArray[np.float64]:
        """[C] the mean square of each channel's values."""
        return np.asarray(np.square(self.values, dtype=np.float64).mean(axis=1))

    @classmethod
    def of(cls, array: Array, positions: int, axis: int = 1) -> Self:
        """Looks at a tensor whose channels are along `axis`, at some of its positions."""
        flat = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
        step = -(-flat.shape[1] // positions) | 1
        return cls(flat[:, ::step].copy(), np.maximum(flat.max(axis=1), -flat.min(axis=1)))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Returns what was seen on several samples."""
        values = np.concatenate([part.values for part in parts], axis=1)
        return cls(values, np.max([part.peaks for part in parts], axis=0))

    def divide(self, factors: Factors) -> "SeenChannels":
        """Returns the tensor divided by one factor per channel, [C]."""
        divisors = factors.astype(np.float32)
        return SeenChannels(self.values / divisors[:, None], self.peaks / divisors)


class ChannelSurvey:
    """Looks at what layers read, at all of it when it is first asked, and keeps it.

    A repair that rescales a tensor says so with `divide` or `derive`.

    Args:
        samples: calibration inputs.
    """

    def __init__(self, samples: Sequence[dict[str, Array]]) -> None:
        self.samples = samples
        self._seen: dict[tuple[str, int], SeenChannels] = {}

    def look(self, graph: Graph, axes: Mapping[str, int]) -> dict[str, SeenChannels]:
        """Returns what tensors hold, by the axes of their channels.

        Args:
            graph: the float network, as it was rescaled so far.
            axes: of the tensors.
        """
        missing = [item for item in axes.items() if item not in self._seen]
        if missing:
            others = [] if self._seen else _list_read(graph)
            self._seen |= self._observe(graph, list(dict.fromkeys([*missing, *others])))
        return {name: self._seen[name, axis] for name, axis in axes.items()}

    def divide(self, tensors: Collection[str], factors: Factors) -> None:
        """Takes note that tensors are divided by one factor per channel, [C]."""
        for name, axis in self._seen:
            if name in tensors:
                self._seen[name, axis] = self._seen[name, axis].divide(factors)

    def derive(self, result: str, tensor: str, factors: Factors) -> None:
        """Takes note of a new tensor: another one, which stays, divided by factors [C]."""
        known = [axis for name, axis in self._seen if name == tensor]
        for axis in known:
            self._seen[result, axis] = self._seen[tensor, axis].divide(factors)

    def _observe(
        self, graph: Graph, wanted: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], SeenChannels]:
        """Computes the float network on all samples, and looks at tensors by axes."""
        samples = self.samples
        computed = sorted({name for name, _ in wanted} - set(graph.inputs))
        threads = threads_each(len(samples))
        network = Subgraph(graph, graph.nodes, graph.weights, samples[0], computed, threads=threads)
        each = max(1, POSITIONS // len(samples))

        def look(sample: dict[str, Array]) -> list[SeenChannels]:
            values = sample | (network.run(sample) if computed else {})
            return [SeenChannels.of(values[name], each, axis) for name, axis in wanted]

        seen = list(map_ahead(look, (samples[index] for index in range(len(samples)))))
        parts = zip(*seen, strict=True)
        return {item: SeenChannels.join(own) for item, own in zip(wanted, parts, strict=True)}


def _list_read(graph: Graph) -> list[tuple[str, int]]:
    """Returns what layers with constant weights read, with the axes of the channels."""
    return [
        (node.input[0], AXES[node.op_type])
        for node in graph.nodes
        if node.op_type in AXES
        and node.input[1] in graph.weights
        and node.input[0] not in graph.weights
    ]
