"""Tries Torch-Pruning 1.6.1 on the two-head road network, beside framefit.

`pip install torch-pruning==1.6.1` first: it is no dependency of framefit. Outputs of both heads are
told to Torch-Pruning as layers to ignore; once as it is, once with the attention ignored too.
`python -m benchmarks.prune_peers`.
"""

from collections.abc import Sequence

import torch
from torch import nn

from benchmarks.prune_zoo import build_esp, measure_network

RATIO = 0.3


def try_torch_pruning(ignored: Sequence[str]) -> str:
    """Prunes with group magnitude; returns "runs", or how it failed.

    Args:
        ignored: beginnings of the names of layers to ignore.
    """
    import torch_pruning

    network = build_esp()
    x = torch.randn(1, 3, 64, 64)
    layers = [
        part
        for name, part in network.named_modules()
        if name.startswith(tuple(ignored)) and isinstance(part, nn.Conv2d | nn.Linear)
    ]
    layers += [network.drivable.output, network.lanes.output]  # type: ignore[union-attr, list-item]
    try:
        pruner = torch_pruning.pruner.MagnitudePruner(
            network,
            x,
            importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
            pruning_ratio=RATIO,
            ignored_layers=layers,
        )
        pruner.step()
    except Exception as error:
        return f"fails while pruning: {type(error).__name__}: {error}"
    try:
        network(x)
    except Exception as error:
        return f"the pruned network does not run: {type(error).__name__}: {error}"
    return "runs"


if __name__ == "__main__":
    print("torch-pruning, as it is:", try_torch_pruning(["nothing"]))
    attention = ["spatial_attention", "channel_attention"]
    print("torch-pruning, attention ignored:", try_torch_pruning(attention))
    print("framefit:", measure_network(build_esp, 64, RATIO))
