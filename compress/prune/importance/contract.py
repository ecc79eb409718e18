"""What an importance method gets and gives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from compress.prune.analysis.families import Channels, Family
from compress.prune.analysis.shuffles import Place

HeadLosses = Callable[[nn.Module, Any], Mapping[str, Tensor]]
"""Runs the network on one batch and returns a scalar loss per head."""


@dataclass(frozen=True)
class ImportanceData:
    """What gradients and activations are taken on.

    Attributes:
        batches: what `losses` takes; one sample each gives the best estimate.
        losses: a loss per head.
        images: of each batch, the network's arguments.
    """

    batches: Sequence[Any] = ()
    losses: HeadLosses | None = None
    images: Sequence[tuple[Tensor, ...]] = ()


class Scorer(Protocol):
    """An importance method."""

    def __call__(
        self, module: nn.Module, channels: Channels, data: ImportanceData
    ) -> NDArray[np.float64]:
        """Returns a score per id (those at the groups' roots count): higher stays longer."""
        ...


class GroupSums:
    """Adds up values per index of weights' axes into values per channel group.

    Args:
        channels: the structure.
    """

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self.totals = np.zeros(len(channels.roots))

    def add(self, place: Place, values: NDArray[np.floating]) -> None:
        """Adds one value per index of an axis."""
        name, axis = place
        roots = self._channels.roots[self._channels.trace.weights[name][axis]]
        np.add.at(self.totals, roots, values)


def sum_over_others(values: Tensor, axis: int) -> NDArray[np.float64]:
    """Sums a tensor over all axes but one."""
    others = [other for other in range(values.ndim) if other != axis]
    summed = values.sum(others) if others else values
    return np.asarray(summed.detach().double().cpu().numpy())


def family_places(channels: Channels) -> list[Place]:
    """Lists the places of needed weights that any prunable family occupies, each once."""
    places = {place: None for family in channels.families for place, _ in family.places}
    return [place for place in places if place[0] not in channels.trace.unneeded]


def maker_places(channels: Channels, families: Sequence[Family]) -> list[Place]:
    """Lists the weights that make the channels of some families, and the biases added to them."""
    found: dict[Place, None] = {}
    for family in families:
        name, axis = family.source
        bias = name.rpartition(".")[0] + ".bias", 0
        found[name, axis] = None
        if bias in dict(family.places):
            found[bias] = None
    wanted = set(family_places(channels))
    return [place for place in found if place in wanted]


def consumer_places(channels: Channels) -> list[Place]:
    """Lists the places where a layer takes a family's channels in."""
    found: dict[Place, None] = {}
    for layer in channels.trace.layers:
        for axis, ids in channels.trace.weights.get(layer.weight, {}).items():
            is_input = np.array_equal(layer.inputs[: ids.size], ids)
            if is_input or not np.isin(layer.outputs, ids).all():
                found[layer.weight, axis] = None
    wanted = set(family_places(channels))
    return [place for place in found if place in wanted]
