"""What channels cost: their number, multiplications, or measured time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from compress.prune.analysis.families import Channels, Family
from compress.prune.analysis.trace import LayerUse

Kept = Mapping[str, int]
"""Channel groups that are kept, by family."""


class LayerCost(Protocol):
    """What one layer costs at some channel counts."""

    def __call__(self, layer: LayerUse, inputs: int, outputs: int, *, whole_groups: bool) -> float:
        """Returns the cost of a layer with so many input and output channels."""
        ...


class Cost(Protocol):
    """What a network costs, as a function of how many groups each family keeps."""

    def total(self, kept: Kept) -> float:
        """Returns the whole cost."""
        ...

    def saved(self, kept: Kept, family: Family, fewer: int) -> float:
        """Returns how much less it is with `fewer` groups of one family."""
        ...

    def neighbours(self, family: Family) -> set[str]:
        """Returns the families whose savings change when this one shrinks."""
        ...


class ChannelCount:
    """Counts channels.

    Args:
        channels: the structure.
    """

    def __init__(self, channels: Channels) -> None:
        self._families = channels.families

    def total(self, kept: Kept) -> float:
        """Returns the channels that are kept."""
        return sum(kept[family.name] * _channels_of(family) for family in self._families)

    def saved(self, kept: Kept, family: Family, fewer: int) -> float:
        """Returns the channels between the two."""
        return (kept[family.name] - fewer) * _channels_of(family)

    def neighbours(self, family: Family) -> set[str]:
        """Returns the family alone."""
        return {family.name}


def _channels_of(family: Family) -> float:
    """Returns how many channels a group is; in a shuffled stage those of all its layers count."""
    return len(family.roots) / family.count if family.stage is not None else family.width


def count_macs(layer: LayerUse, inputs: int, outputs: int, *, whole_groups: bool) -> float:
    """Returns the multiplications of one layer in one inference."""
    groups = layer.settings.get("groups", 1)
    kernel = int(np.prod(layer.weight_shape[2:], initial=1)) if layer.kind != "linear" else 1
    per_group = layer.inputs.size // groups
    pairs = outputs * per_group if whole_groups else inputs * outputs / groups
    return float(pairs * kernel * layer.positions)


@dataclass(frozen=True)
class _Ends:
    """Indices of a layer's inputs and outputs per family, and those that always stay."""

    inputs: dict[str, int]
    outputs: dict[str, int]
    fixed_inputs: int
    fixed_outputs: int


class LayerSum:
    """Adds up what the layers cost.

    Args:
        channels: the structure.
        layer_cost: of one layer.
        rest: cost of everything else, which stays.
    """

    def __init__(self, channels: Channels, layer_cost: LayerCost, rest: float = 0.0) -> None:
        self._cost = layer_cost
        self._rest = rest
        family_of = {root: family.name for family in channels.families for root in family.roots}
        layers = channels.trace.needed_layers
        self._layers = [(layer, _find_ends(channels, layer, family_of)) for layer in layers]
        self._touching: dict[str, list[int]] = {family.name: [] for family in channels.families}
        for index, (_, ends) in enumerate(self._layers):
            for name in ends.inputs.keys() | ends.outputs.keys():
                self._touching[name].append(index)

    def total(self, kept: Kept) -> float:
        """Returns the whole cost."""
        return self._rest + sum(self._layer(index, kept) for index in range(len(self._layers)))

    def saved(self, kept: Kept, family: Family, fewer: int) -> float:
        """Returns how much less it is with `fewer` groups of one family."""
        changed = {**kept, family.name: fewer}
        return sum(
            self._layer(index, kept) - self._layer(index, changed)
            for index in self._touching[family.name]
        )

    def neighbours(self, family: Family) -> set[str]:
        """Returns the families that share a layer with this one."""
        found = {family.name}
        for index in self._touching[family.name]:
            ends = self._layers[index][1]
            found |= ends.inputs.keys() | ends.outputs.keys()
        return found

    def _layer(self, index: int, kept: Kept) -> float:
        layer, ends = self._layers[index]
        inputs = ends.fixed_inputs + sum(n * kept[name] for name, n in ends.inputs.items())
        outputs = ends.fixed_outputs + sum(n * kept[name] for name, n in ends.outputs.items())
        return self._cost(layer, inputs, outputs, whole_groups=layer.loses_whole_groups)


def _find_ends(channels: Channels, layer: LayerUse, family_of: dict[int, str]) -> _Ends:
    sides = []
    stages = {one.name: one.stage for one in channels.families if one.stage is not None}
    for ids in (layer.inputs, layer.outputs):
        counts: dict[str, dict[int, int]] = {}
        fixed = 0
        for root in channels.roots[ids].tolist():
            name = family_of.get(root)
            if name is None:
                fixed += 1
            else:
                members = counts.setdefault(name, {})
                members[root] = members.get(root, 0) + 1
        per_group = {
            name: sum(members.values()) // stages[name].units
            if name in stages
            else max(members.values())
            for name, members in counts.items()
        }
        sides.append((per_group, fixed))
    return _Ends(sides[0][0], sides[1][0], sides[0][1], sides[1][1])
