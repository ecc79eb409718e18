"""Keeps what a network computes where its code scales by the root of a channel count.

Attention with a single head divides by the root of its width, and so do correlations
(`q @ k / q.shape[1] ** 0.5`). When channels leave, the code divides by less. A weight of the same
channels is multiplied by what makes up for it, so that the pruned network still equals the zeroed
original. Which weight does is found by trying.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from compress.prune.analysis.channel_sets import Ids
from compress.prune.analysis.families import Channels, Family
from compress.prune.computed_scales import Scale

_MOST_OWNERS = 12
_EXPONENTS = (1.0, 0.5)
"""The second where one weight makes both factors of a product."""


@dataclass(frozen=True)
class Rescaling:
    """Values that are multiplied by what makes up for a scale that the code computes.

    Attributes:
        family: name of the channels.
        places: parameters and the axis along which those channels lie.
        part: which of a channel's several indices along the axis, from 0.
        scales: which of the network's scales follow the channels' number.
        exponent: of what makes up for them.
    """

    family: str
    places: tuple[tuple[str, int], ...]
    part: int
    scales: tuple[int, ...]
    exponent: float

    def factor(self, before: Sequence[Scale], after: Sequence[Scale]) -> float:
        """Returns by what the values are multiplied, with the scales of both widths."""
        changes = (_change(before[index], after[index]) for index in self.scales)
        return math.prod(changes) ** self.exponent


def propose_rescalings(
    module: nn.Module,
    channels: Channels,
    family: Family,
    before: Sequence[Scale],
    after: Sequence[Scale],
) -> Iterator[tuple[Rescaling, ...]]:
    """Yields what might make up for the scales that differ, in the order of the network's weights.

    Where several modules scale, each has a weight that is called the same below it.

    Args:
        module: the network.
        channels: its structure.
        family: the channels of which some have left.
        before: the scales of the whole network.
        after: those without some of the channels, in the same order.
    """
    if [scale.operator for scale in before] != [scale.operator for scale in after]:
        return
    differing: dict[str, list[int]] = {}
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            differing.setdefault(old.place, []).append(index)
            if not _is_ratio(old, new):
                return
    sides = _sides(module, channels, family)
    counts = dict(family.places)
    for names in _common_ends(list(differing), [owner for owner, _ in sides]):
        for side in ("output", "input"):
            chosen = [sides.get((name, side), ()) for name in names]
            if not all(chosen):
                continue
            for part in range(max(counts[place] for places in chosen for place in places)):
                for exponents in _exponents([len(scales) for scales in differing.values()]):
                    yield tuple(
                        Rescaling(family.name, places, part, tuple(scales), exponent)
                        for places, scales, exponent in zip(
                            chosen, differing.values(), exponents, strict=True
                        )
                    )


def _exponents(counts: Sequence[int]) -> list[tuple[float, ...]]:
    """Lists exponents for modules that scale so many times each.

    A module scales one value several times, or each time another one (a block that runs again and
    again, a correlation at several places): then the change counts once.
    """
    together = [(exponent,) * len(counts) for exponent in _EXPONENTS]
    once = [tuple(exponent / count for count in counts) for exponent in _EXPONENTS]
    return list(dict.fromkeys((*together, *once)))


def _sides(
    module: nn.Module, channels: Channels, family: Family
) -> dict[tuple[str, str], tuple[tuple[str, int], ...]]:
    """Returns the parameters of each layer that make these channels, and those that read them."""
    counts = dict(family.places)
    found: dict[tuple[str, str], tuple[tuple[str, int], ...]] = {}
    for name, axes in channels.trace.weights.items():
        owner = name.rpartition(".")[0]
        is_turned = getattr(module.get_submodule(owner), "transposed", False)
        for axis in axes:
            if (name, axis) not in counts or name not in channels.trace.parameters:
                continue
            makes = len(axes) == 1 or axis == int(is_turned)
            side = owner, "output" if makes else "input"
            found[side] = (*found.get(side, ()), (name, axis))
    return found


def _common_ends(places: list[str], owners: list[str]) -> list[list[str]]:
    """Lists layers of one name below each of some modules; of a single module all others too."""
    found: dict[str, list[str]] = {}
    for owner in dict.fromkeys(owners):
        for place in places:
            prefix = f"{place}." if place else ""
            if owner.startswith(prefix):
                found.setdefault(owner[len(prefix) :], []).append(owner)
    ends = {end: names for end, names in found.items() if len(names) == len(places)}
    if len(places) == 1:
        ends |= {owner: [owner] for owner in dict.fromkeys(owners)}
    return list(ends.values())[:_MOST_OWNERS]


@torch.no_grad()
def rescale(
    narrow: nn.Module, channels: Channels, removed: set[int], rescaling: Rescaling, factor: float
) -> None:
    """Multiplies the values of a network from which channels have left already, in place.

    Args:
        narrow: the network.
        channels: the structure of the whole one.
        removed: roots of the groups that have left.
        rescaling: which values.
        factor: by what.
    """
    family = next(one for one in channels.families if one.name == rescaling.family)
    tensors = dict(narrow.named_parameters())
    for name, axis in rescaling.places:
        row = channels.roots[channels.trace.weights[name][axis]]
        chosen = np.isin(row, np.array(family.roots)) & (_ranks(row) == rescaling.part)
        indices = np.flatnonzero(chosen[~np.isin(row, np.array(sorted(removed)))])
        shape = [1] * tensors[name].ndim
        shape[axis] = -1
        factors = torch.ones(tensors[name].shape[axis], dtype=tensors[name].dtype)
        factors[torch.from_numpy(indices)] = factor
        tensors[name].data = tensors[name] * factors.reshape(shape).to(tensors[name].device)


def _ranks(row: Ids) -> Ids:
    """Returns how many equal entries come before each."""
    seen: dict[int, int] = {}
    ranks = np.empty(row.size, np.int64)
    for index, root in enumerate(row.tolist()):
        ranks[index] = seen.get(root, 0)
        seen[root] = ranks[index] + 1
    return ranks


def _is_ratio(old: Scale, new: Scale) -> bool:
    return old.operator in ("mul", "mul_", "div", "div_") and old.value * new.value > 0


def _change(old: Scale, new: Scale) -> float:
    ratio = old.value / new.value
    return ratio if old.operator.startswith("mul") else 1 / ratio
