"""Prunes with Torch-Pruning to the latency of another network.

It has no latency goal, so its pruning ratio is searched until the exported network is as fast. It
runs beside framefit in one process, but not from framefit's environment.
"""

import importlib
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from compress.prune.analysis.api import output_tensors
from compress.prune.importance import ImportanceData

FOLDER = Path("out/torch_pruning")
VERSION = "1.6.1"
INSTALL = f".venv/bin/uv pip install --no-deps --target {FOLDER} torch-pruning=={VERSION}"
IMPORTANCES = {"magnitude": "GroupMagnitudeImportance", "taylor": "GroupTaylorImportance"}
ROUND_TO = 8
WITHIN, TRIALS = 0.03, 8


def open_torch_pruning() -> Any:
    """Returns the library; ends with the command that installs it where it is missing."""
    folder = str(FOLDER.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module("torch_pruning")
    except ImportError:
        raise SystemExit(f"Torch-Pruning is missing; install it with: {INSTALL}") from None


@dataclass(frozen=True)
class TorchPruning:
    """Prunes a network by group magnitude or group Taylor, ranked globally.

    Attributes:
        module: the network; it is not changed.
        example: its input.
        data: samples and losses; their gradients are added up for "taylor".
        importance: a key of `IMPORTANCES`.
    """

    module: nn.Module
    example: Tensor
    data: ImportanceData
    importance: str
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, ratio: float) -> nn.Module:
        """Returns the network without this share of its channels, counted by Torch-Pruning.

        Raises:
            Exception: whatever the library raises, or PyTorch where the result does not run.
        """
        library = open_torch_pruning()
        network = deepcopy(self.module).eval().requires_grad_(True)
        if self.importance == "taylor":
            self._set_gradients(network)
        pruner = library.pruner.MagnitudePruner(
            network,
            self.example,
            importance=getattr(library.importance, IMPORTANCES[self.importance])(),
            global_pruning=True,
            pruning_ratio=ratio,
            round_to=ROUND_TO,
            ignored_layers=find_output_layers(network, self.example),
        )
        pruner.step()
        network.zero_grad(set_to_none=True)
        with torch.no_grad():
            network(self.example)
        return network

    def _set_gradients(self, network: nn.Module) -> None:
        if not self.gradients:
            self.gradients.update(sum_gradients(network, self.data))
        for name, parameter in network.named_parameters():
            parameter.grad = self.gradients[name].clone()


def sum_gradients(network: nn.Module, data: ImportanceData) -> dict[str, Tensor]:
    """Returns the gradients of the heads' losses, added up over heads and batches."""
    if data.losses is None:
        raise ValueError("gradients need losses")
    for batch in data.batches:
        torch.stack(list(data.losses(network, batch).values())).sum().backward()
    return {
        name: torch.zeros_like(value) if value.grad is None else value.grad.clone()
        for name, value in network.named_parameters()
    }


@torch.no_grad()
def find_output_layers(network: nn.Module, example: Tensor) -> list[nn.Module]:
    """Lists the convolutions and linear layers whose results are outputs of the network."""
    made: list[tuple[nn.Module, Tensor]] = []
    handles = [
        layer.register_forward_hook(lambda layer, _, result: made.append((layer, result)))
        for layer in network.modules()
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear)
    ]
    try:
        outputs = {value.data_ptr() for value in output_tensors(network(example))}
    finally:
        for handle in handles:
            handle.remove()
    return [layer for layer, result in made if result.data_ptr() in outputs]


@dataclass
class Search:
    """What was found on the way to a latency.

    Attributes:
        module: the network nearest to it; None where none could be pruned.
        ratio: its pruning ratio.
        share: its latency relative to the one to reach.
        trials: (ratio, share or the error) of all.
    """

    module: nn.Module | None = None
    ratio: float = 0.0
    share: float = float("inf")
    trials: list[tuple[float, float | str]] = field(default_factory=list)


def search_ratio(
    prune: Callable[[float], nn.Module],
    measure: Callable[[nn.Module], float],
    whole: float,
    progress: Callable[[str], None],
) -> Search:
    """Searches the pruning ratio at which a network's latency is that of another.

    Args:
        prune: removes a share of the channels.
        measure: latency relative to the one to reach.
        whole: that of the network as it is.
        progress: told of each trial.
    """
    search = Search()
    low, high = (0.0, whole), (1.0, 0.0)
    for trial in range(TRIALS):
        between = (low[1] - 1) / (low[1] - high[1]) if trial % 3 < 2 else 0.5
        ratio = low[0] + (high[0] - low[0]) * min(max(between, 0.1), 0.9)
        share: float | str
        try:
            module = prune(ratio)
            share = measure(module)
        except Exception as error:
            share = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        search.trials.append((ratio, share))
        progress(f"pruning ratio {ratio:.3f}: {share}")
        if isinstance(share, str):
            high = (ratio, 0.0)
            continue
        if abs(share - 1) < abs(search.share - 1):
            search.module, search.ratio, search.share = module, ratio, share
        if abs(share - 1) <= WITHIN:
            break
        if share > 1:
            low = (ratio, share)
        else:
            high = (ratio, share)
    return search
