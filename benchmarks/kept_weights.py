"""Networks that a benchmark trains once: their weights are kept in a file."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from artifacts.atomic import atomic_path


def train_once(network: nn.Module, path: Path, teach: Callable[[nn.Module], object]) -> nn.Module:
    """Returns the network, trained, in evaluation mode; its weights are kept at the path.

    Args:
        network: changed in place.
        path: read where it is there, else written.
        teach: trains it.
    """
    if path.is_file():
        network.load_state_dict(torch.load(path, weights_only=True))
        return network.eval()
    teach(network)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        torch.save(network.state_dict(), temporary)
    return network.eval()
