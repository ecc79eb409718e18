"""What a float network's tensors hold by channel: one forward pass serves repairs and ranges."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from compress.progress import Progress
from compress.quantize.graph import Array, Graph
from compress.quantize.spread_values import spread_places
from compress.quantize.survey import (
    Survey,
    SurveyedTensor,
    look_at_samples,
    values_of_each,
)

POSITIONS, FEWEST_POSITIONS = 2048, 256
"""That are kept of a tensor at least, of all samples together; fewer of very wide networks."""
BYTES_IN_ALL = 1 << 29
"""Of all tensors, above which they keep fewer positions."""
AXES = {"Conv": 1, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1}
"""Where layers expect the channels of what they read."""
PICTURE_AXIS = 1
"""Of the channels of what no layer reads."""

Factors = NDArray[np.float64]


@dataclass(frozen=True)
class SeenChannels:
    """A tensor at a sample of its positions.

    Attributes:
        values: [C, n] values, one sample behind the other.
        counts: of the positions of each sample; regions of interest are more or fewer.
        lows: [C] smallest value over all positions.
        highs: [C] largest value over all positions.
    """

    values: NDArray[np.float32]
    counts: tuple[int, ...]
    lows: NDArray[np.float32]
    highs: NDArray[np.float32]

    @cached_property
    def peaks(self) -> NDArray[np.float32]:
        """[C] the largest absolute value of each channel."""
        return np.asarray(np.maximum(self.highs, -self.lows))

    @cached_property
    def power(self) -> NDArray[np.float64]:
        """[C] the mean square of each channel's values."""
        return np.asarray(np.square(self.values, dtype=np.float64).mean(axis=1))

    @classmethod
    def of(cls, array: Array, positions: int, axis: int = 1, values: int = 0) -> Self:
        """Looks at a tensor whose channels are along `axis`, at some of its positions.

        Args:
            array: what is looked at; without such an axis, it is one channel.
            positions: that are kept at most.
            axis: of the channels.
            values: more positions are kept until there are so many values.
        """
        if not -array.ndim <= axis < array.ndim:
            array, axis = array.reshape(1, -1), 0
        flat = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
        positions = max(positions, -(-values // len(flat)))
        kept = flat[:, spread_places(flat.shape[1], positions)].copy()
        lows, highs = flat.min(axis=1, initial=np.inf), flat.max(axis=1, initial=-np.inf)
        return cls(kept, (kept.shape[1],), lows, highs)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Returns what was seen on several samples."""
        values = np.concatenate([part.values for part in parts], axis=1)
        counts = tuple(count for part in parts for count in part.counts)
        lows = np.min([part.lows for part in parts], axis=0)
        return cls(values, counts, lows, np.max([part.highs for part in parts], axis=0))

    def divide(self, factors: Factors) -> "SeenChannels":
        """Returns the tensor divided by one positive factor per channel, [C]."""
        divisors = factors.astype(np.float32)
        return SeenChannels(
            self.values / divisors[:, None],
            self.counts,
            self.lows / divisors,
            self.highs / divisors,
        )

    def as_whole(self, most: int) -> SurveyedTensor:
        """Returns the tensor without regard to channels, at most so many values of each sample."""
        ends = np.cumsum(self.counts)[:-1]
        parts = [part.reshape(-1) for part in np.split(self.values, ends, axis=1)]
        return SurveyedTensor(
            [part[spread_places(part.size, most)].copy() for part in parts],
            float(self.lows.min()),
            float(self.highs.max()),
        )


class ChannelSurvey:
    """Looks at a float network's tensors when it is first asked, at all at once, and keeps them.

    A repair that rescales tensors says so with `divide` or `derive`.

    Args:
        samples: calibration inputs.
        ranged: tensors that will be asked for beside those that layers read.
        progress: is told ("survey", samples done, samples in all).
    """

    def __init__(
        self,
        samples: Sequence[dict[str, Array]],
        ranged: Collection[str] = (),
        progress: Progress | None = None,
    ) -> None:
        self.samples = samples
        self._ranged = ranged
        self._progress = progress
        self._seen: dict[tuple[str, int], SeenChannels] = {}

    def look(self, graph: Graph, axes: Mapping[str, int]) -> dict[str, SeenChannels]:
        """Returns what tensors hold, by the axes of their channels.

        Args:
            graph: the float network, as it was rescaled so far.
            axes: of the tensors.
        """
        missing = [item for item in axes.items() if item not in self._seen]
        if missing:
            others = {} if self._seen else dict(_list_axes(graph, self._ranged))
            self._observe(graph, list(dict.fromkeys([*missing, *others.items()])))
        return {name: self._seen[name, axis] for name, axis in axes.items()}

    def divide(self, tensors: Collection[str], factors: Factors, axis: int = 1) -> None:
        """Takes note that tensors are divided by one positive factor per channel, [C].

        What was looked at with its channels along another axis than these is forgotten.
        """
        for name, own in [item for item in self._seen if item[0] in tensors]:
            known = self._seen.pop((name, own))
            if own == axis:
                self._seen[name, own] = known.divide(factors)

    def derive(self, result: str, tensor: str, factors: Factors, axis: int = 1) -> None:
        """Takes note of a new tensor: another one, which stays, divided by factors [C]."""
        if (tensor, axis) in self._seen:
            self._seen[result, axis] = self._seen[tensor, axis].divide(factors)

    def take(self, tensors: Sequence[str]) -> Survey:
        """Returns those of the tensors that were looked at, without regard to channels."""
        known = {name: seen for (name, _), seen in self._seen.items()}
        most = values_of_each(len(tensors), len(self.samples))
        return {name: known[name].as_whole(most) for name in tensors if name in known}

    def _observe(self, graph: Graph, wanted: Sequence[tuple[str, int]]) -> None:
        """Computes the float network on all samples, and looks at tensors by axes."""
        count = len(self.samples)
        in_all = BYTES_IN_ALL // (4 * max(1, _count_channels(graph, wanted)))
        positions = max(1, min(max(in_all, FEWEST_POSITIONS), POSITIONS) // count)
        values = values_of_each(len(wanted), count)

        def look(held: Mapping[str, Array]) -> list[SeenChannels]:
            return [SeenChannels.of(held[name], positions, axis, values) for name, axis in wanted]

        tensors = list(dict.fromkeys(name for name, _ in wanted))
        parts: list[list[SeenChannels]] = [[] for _ in wanted]
        for seen in look_at_samples(graph, tensors, self.samples, look, self._progress):
            for own, part in zip(parts, seen, strict=True):
                own.append(part)
        for item in reversed(wanted):
            self._seen[item] = SeenChannels.join(parts.pop())


def _count_channels(graph: Graph, wanted: Sequence[tuple[str, int]]) -> int:
    """Returns how many channels tensors of known shapes have together."""
    shapes = ((graph.shapes.get(name, ()), axis) for name, axis in wanted)
    return sum(shape[axis] for shape, axis in shapes if -len(shape) <= axis < len(shape))


def _list_axes(graph: Graph, ranged: Iterable[str]) -> dict[str, int]:
    """Returns the axes of the channels of what layers with constant weights read, and of others."""
    axes = dict.fromkeys(ranged, PICTURE_AXIS)
    for node in graph.nodes:
        if node.op_type in AXES and node.input[1] in graph.weights:
            axes[node.input[0]] = AXES[node.op_type]
    return {name: axis for name, axis in axes.items() if name not in graph.weights}
