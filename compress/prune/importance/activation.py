"""Importance from how strongly channels respond."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from compress.prune.analysis.families import Channels
from compress.prune.analysis.shuffles import Place
from compress.prune.convolutions import CONVOLUTIONS
from compress.prune.importance.contract import GroupSums, ImportanceData, sum_over_others

Totals = dict[Place, NDArray[np.float64]]


def score_by_activation(
    module: nn.Module, channels: Channels, data: ImportanceData
) -> NDArray[np.float64]:
    """Mean absolute output of the layers that make a group, relative to the layer's mean.

    Where a layer's output is not seen (a product with a matrix that is a parameter), the mean
    square of its weights stands for it.
    """
    places = _source_places(channels)
    tensors = dict((*module.named_parameters(), *module.named_buffers()))
    of_modules: Totals = {}
    handles = []
    for place in places:
        owner = module.get_submodule(place[0].rpartition(".")[0])
        size = channels.trace.weights[place[0]][place[1]].size
        handles.append(owner.register_forward_hook(_add_module_output(of_modules, place, size)))
    layers = _LayerOutputs({id(tensors[name]): (name, axis) for name, axis in places})
    try:
        with torch.no_grad(), layers:
            for inputs in data.images:
                module(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    sums = GroupSums(channels)
    for place in places:
        values = layers.totals.get(place, of_modules.get(place))
        if values is None:
            values = sum_over_others(tensors[place[0]].detach() ** 2, place[1])
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


class _LayerOutputs(TorchFunctionMode):
    """Adds up the outputs of convolutions and linear layers, whoever calls them.

    Args:
        weights: place of each weight, by the tensor's identity.
    """

    def __init__(self, weights: Mapping[int, Place]) -> None:
        super().__init__()
        self.totals: Totals = {}
        self._weights = weights

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        out = func(*args, **named)
        if func in CONVOLUTIONS or func is F.linear:
            weight = args[1] if len(args) > 1 else named["weight"]
            place = self._weights.get(id(weight))
            if place is not None:
                is_linear = func is F.linear
                axis = out.ndim - (1 if is_linear else weight.ndim - 1)
                _add_output(self.totals, place, out, axis)
        return out


def _add_module_output(totals: Totals, place: Place, size: int) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        axis = 1 if output.ndim > 3 and output.shape[1] == size else output.ndim - 1
        if output.shape[axis] == size:
            _add_output(totals, place, output, axis)

    return hook


def _add_output(totals: Totals, place: Place, output: Tensor, axis: int) -> None:
    others = [other for other in range(output.ndim) if other != axis]
    values = output.abs().mean(others) if others else output.abs()
    totals[place] = totals.get(place, 0.0) + values.double().cpu().numpy()
