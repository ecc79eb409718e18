"""Importance from the weights alone."""

import numpy as np
from numpy.typing import NDArray
from torch import nn

from compress.prune.analysis.families import Channels
from compress.prune.importance.contract import (
    GroupSums,
    ImportanceData,
    family_places,
    sum_over_others,
)


def score_by_magnitude(
    module: nn.Module, channels: Channels, data: ImportanceData
) -> NDArray[np.float64]:
    """Squared weights of a group in every layer that has it, each layer relative to its mean.

    After the group magnitude of Fang et al., 2023 ("DepGraph").
    """
    del data
    sums = GroupSums(channels)
    parameters = dict(module.named_parameters())
    for name, axis in family_places(channels):
        if name in parameters and parameters[name].ndim > 1:
            values = sum_over_others(parameters[name].detach() ** 2, axis)
            sums.add((name, axis), values / max(values.mean(), 1e-30))
    return sums.totals


def score_by_batch_norm(
    module: nn.Module, channels: Channels, data: ImportanceData
) -> NDArray[np.float64]:
    """Absolute BatchNorm scales of a group, relative to the layer's mean.

    Liu et al., 2017 ("Network Slimming"). A group without BatchNorm takes its magnitude.
    """
    sums = GroupSums(channels)
    for name, axis in family_places(channels):
        owner_name, _, leaf = name.rpartition(".")
        owner = module.get_submodule(owner_name)
        if isinstance(owner, nn.modules.batchnorm._BatchNorm) and leaf == "weight":
            values = owner.weight.detach().abs().double().cpu().numpy()
            sums.add((name, axis), values / max(values.mean(), 1e-30))
    return np.where(sums.totals > 0, sums.totals, score_by_magnitude(module, channels, data))
