"""Builds a network of the zoo with random weights that behave like trained ones."""

import numpy as np
import torch
from torch import nn

from artifacts.synthetic_pictures import draw_pictures
from benchmarks.zoo.networks import ZooNetwork

CLASSES = 16
SETTLING_BATCHES = 2
BATCH = 16
DEAD = 1e-3
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def build_network(network: ZooNetwork, seed: int = 0) -> nn.Module:
    """Returns the network in evaluation mode.

    Fresh weights differ from trained ones in two ways that matter here: some scales start at
    (almost) zero, which switches whole branches off, and the statistics of batch normalization are
    those of nothing. So such scales are drawn anew, and pictures run through in training mode.
    """
    import timm

    torch.manual_seed(seed)
    module = timm.create_model(
        network.name, pretrained=False, num_classes=CLASSES, **network.options
    )
    generator = torch.Generator().manual_seed(seed)
    wake_scales(module, generator)
    settle_statistics(module, network.size, np.random.default_rng(seed))
    return module


def wake_scales(module: nn.Module, generator: torch.Generator) -> None:
    """Draws what starts at about zero, which would switch off what is in front of it.

    Scales (layer scale, last norms) are from 0.2 to 0.6, a last layer's matrix is normal.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not parameter.numel():
                continue
            is_scale = name.rpartition(".")[2] in ("weight", "gamma", "gamma_1", "gamma_2", "gain")
            if is_scale and parameter.squeeze().ndim <= 1 and parameter.abs().max() < DEAD:
                drawn = 0.2 + 0.4 * torch.rand(parameter.shape, generator=generator)
                parameter.copy_(drawn)
            elif parameter.squeeze().ndim > 1 and parameter.abs().max() < DEAD:
                fan_in = parameter[0].numel()
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / fan_in**0.5)


def settle_statistics(module: nn.Module, size: int, rng: np.random.Generator) -> None:
    """Runs pictures through in training mode, so that batch normalization fits its input."""
    for part in module.modules():
        if isinstance(part, _BATCH_NORMS):
            part.reset_running_stats()
            part.momentum = None
    module.train()
    with torch.no_grad():
        for _ in range(SETTLING_BATCHES):
            module(torch.from_numpy(draw_pictures((BATCH, 3, size, size), rng)))
    module.eval()
