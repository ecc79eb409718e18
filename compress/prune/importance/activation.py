"""Importance from how strongly channels respond."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compress.prune.analysis.families import Channels
from compress.prune.analysis.shuffles import Place
from compress.prune.importance.contract import GroupSums, ImportanceData


def score_by_activation(
    module: nn.Module, channels: Channels, data: ImportanceData
) -> NDArray[np.float64]:
    """Mean absolute output of the layers that make a group, relative to the layer's mean."""
    totals: dict[Place, NDArray[np.float64]] = {}
    handles = []
    for place in _source_places(channels):
        owner = module.get_submodule(place[0].rpartition(".")[0])
        size = channels.trace.weights[place[0]][place[1]].size
        handles.append(owner.register_forward_hook(_add_output(totals, place, size)))
    try:
        with torch.no_grad():
            for inputs in data.images:
                module(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    sums = GroupSums(channels)
    for place, values in totals.items():
        sums.add(place, values / max(values.mean(), 1e-30))
    return sums.totals


def _source_places(channels: Channels) -> list[Place]:
    """Lists the layers that make the channels; a shuffled stage has several."""
    makers = {layer.weight for layer in channels.trace.layers}
    places = {family.source: None for family in channels.families}
    for family in channels.families:
        if family.stage is not None:
            places |= {
                place: None for place, _ in family.places if place[0] in makers and not place[1]
            }
    return list(places)


def _add_output(
    totals: dict[Place, NDArray[np.float64]], place: Place, size: int
) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        axis = 1 if output.ndim > 3 and output.shape[1] == size else output.ndim - 1
        if output.shape[axis] != size:
            return
        others = [other for other in range(output.ndim) if other != axis]
        values = output.abs().mean(others).double().cpu().numpy()
        totals[place] = totals.get(place, 0.0) + values

    return hook
