"""The parts of outputs that join values of unlike units, such as boxes in pixels and probabilities.

In a sum of squares over all of them the small ones count for nothing: a detector's boxes vary by
tens of pixels, its probabilities by a tenth.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

UNLIKE = 10.0
"""Values that vary by a tenth of others count for a hundredth in a sum of squares with them."""
_FEWEST = 8
"""Fewer values say too little of how much they vary."""
_ROUNDING = 1e-6
"""What float32 lets a constant vary by, relative to its size."""


@dataclass(frozen=True)
class Part:
    """Places along an axis of an output that have one unit."""

    name: str
    axis: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class OutputParts:
    """What outputs are judged by: their parts, where they have some.

    Attributes:
        of: parts by the name of their output; an output that is not named is whole.
        variances: of all values, by the name of a part or of a whole output.
    """

    of: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    variances: Mapping[str, float] = field(default_factory=dict)

    def names(self, output: str) -> tuple[str, ...]:
        """Returns the names of an output's parts, or its own."""
        return tuple(part.name for part in self.of.get(output, ())) or (output,)

    def split(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns each part as an output of its own."""
        found = {}
        for name, value in outputs.items():
            for part in self.of.get(name, ()):
                places = torch.tensor(part.places, device=value.device)
                found[part.name] = value.index_select(part.axis, places)
            if name not in self.of:
                found[name] = value
        return found


def find_parts(
    answers: Iterable[Mapping[str, Tensor]], outputs: Sequence[str] | None = None
) -> OutputParts:
    """Finds the outputs whose values along an axis are of unlike units.

    Sorted by how much each place along the axis varies, values are of one unit up to a step of
    `UNLIKE` or more. Those that stay within 0 and 1 are taken to be probabilities, which are one
    kind: a class that is seldom seen is no unit of its own. Constants go with what varies most,
    where they count least.

    Args:
        answers: of one network to several inputs, [N, ...] each.
        outputs: those that are looked at; None for all.
    """
    spreads: dict[str, _Spreads] = {}
    for answer in answers:
        for name, value in answer.items():
            if value.numel() and (outputs is None or name in outputs):
                spreads.setdefault(name, _Spreads(value)).update(value)
    found: dict[str, tuple[Part, ...]] = {}
    variances: dict[str, float] = {}
    for name, spread in spreads.items():
        axis, kinds = spread.find_kinds()
        parts = tuple(
            Part(_name_part(name, places, is_second=axis == 1), axis, places) for places in kinds
        )
        if parts:
            found[name] = parts
            variances |= {part.name: spread.variance(axis, part.places) for part in parts}
        else:
            variances[name] = spread.variance()
    return OutputParts(found, variances)


class _Spreads:
    """How much the values of an output vary, over all answers and along each axis of units."""

    def __init__(self, value: Tensor) -> None:
        self._whole = _Spread()
        axes = _unit_axes(value) if value.is_floating_point() else ()
        self._axes = {axis: _Spread() for axis in axes}

    def update(self, value: Tensor) -> None:
        """Adds the output of an answer."""
        self._whole.update(value.reshape(1, -1))
        for axis, spread in self._axes.items():
            spread.update(value.movedim(axis, 0).flatten(1))

    def find_kinds(self) -> tuple[int, list[tuple[int, ...]]]:
        """Returns the axis along which units differ most, and the places of each unit, if any."""
        kinds = {axis: spread.find_kinds() for axis, spread in self._axes.items()}
        axis = max(kinds, key=lambda axis: kinds[axis][0], default=0)
        step, places = kinds.get(axis, (1.0, []))
        return axis, places if step >= UNLIKE else []

    def variance(self, axis: int = 0, places: Sequence[int] = (0,)) -> float:
        """Returns the variance of the values at some places along an axis, or of all."""
        return self._axes.get(axis, self._whole).variance(places)


def _unit_axes(value: Tensor) -> tuple[int, ...]:
    """Returns the axes along which units may differ: the second, and the last of channels last."""
    last = value.ndim - 1
    if last < 1:
        return ()
    is_channels = last > 1 and value.shape[last] <= min(value.shape[2:])
    return (1, last) if is_channels else (1,)


def _name_part(output: str, places: Sequence[int], *, is_second: bool) -> str:
    """Returns such as `boxes[:, 0:4]` and `boxes[..., 4:6+7]`."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][1] == place:
            runs[-1][1] += 1
        else:
            runs.append([place, place + 1])
    text = "+".join(f"{start}:{end}" if end > start + 1 else str(start) for start, end in runs)
    return f"{output}[{':' if is_second else '...'}, {text}]"


class _Spread:
    """How much the values at each place along an axis vary, over all answers."""

    def __init__(self) -> None:
        self._count = 0
        self._sums: Tensor | None = None

    def update(self, values: Tensor) -> None:
        """Adds the values of an answer, [places, values]; of other sizes, there are no kinds."""
        values = values.detach().double().cpu()
        if self._sums is None:
            self._shift = values.mean(1, keepdim=True)
            self._sums = torch.zeros(2, len(values), dtype=torch.float64)
            self._least, self._most = values.amin(1), values.amax(1)
        if len(values) != self._sums.shape[1]:
            self._sums = torch.full_like(self._sums, math.nan)
            return
        moved = values - self._shift
        self._count += values.shape[1]
        self._sums += torch.stack([moved.sum(1), moved.square().sum(1)])
        self._least = torch.minimum(self._least, values.amin(1))
        self._most = torch.maximum(self._most, values.amax(1))

    def variance(self, places: Sequence[int]) -> float:
        """Returns the variance of all values at some places."""
        if self._sums is None:
            return math.nan
        mean, square = self._sums[:, list(places)] / self._count
        within = (square - mean.square()).clamp(min=0).mean()
        between = (self._shift[list(places), 0] + mean).var(correction=0)
        return float(within + between)

    def find_kinds(self) -> tuple[float, list[tuple[int, ...]]]:
        """Returns the largest step between the spreads of two kinds, and the places of each."""
        if self._count < _FEWEST or self._sums is None or not bool(self._sums.isfinite().all()):
            return 1.0, []
        mean, square = self._sums / self._count
        spread = (square - mean.square()).clamp(min=0).sqrt()
        size = torch.maximum(self._least.abs(), self._most.abs())
        varies = spread > _ROUNDING * size
        is_probability = varies & (self._least >= 0) & (self._most <= 1)
        if is_probability.any():
            spread[is_probability] = spread[is_probability].square().mean().sqrt()
        order = [place for place in spread.argsort(stable=True).tolist() if varies[place]]
        kinds: list[list[int]] = [order[:1]]
        largest = 1.0
        for before, place in pairwise(order):
            step = float(spread[place] / spread[before])
            largest = max(largest, step)
            if step >= UNLIKE:
                kinds.append([])
            kinds[-1].append(place)
        kinds[-1] += torch.nonzero(~varies).flatten().tolist()
        return largest, sorted(tuple(sorted(kind)) for kind in kinds)
