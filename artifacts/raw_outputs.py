"""Tells networks that answer maps from those that answer boxes they chose among them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from artifacts.errors import InputError
from artifacts.module_outputs import name_leaves
from artifacts.module_run import run_module

_CHOOSERS = frozenset({"nms", "nms_rotated", "batched_nms", "soft_nms"})


@torch.no_grad()
def require_raw_outputs(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Runs a network once and checks that what it answers does not end in a choice of boxes.

    How many boxes non-maximum suppression keeps depends on their values. On random inputs it may be
    none, and two networks seldom keep the same; so such answers neither prove anything nor can be
    compared.

    Raises:
        InputError: it suppresses boxes, every tensor that it answers is empty, or it fails.
    """
    with _Watch() as watch:
        answer = run_module(module, inputs)
    leaves = [leaf for _, leaf in name_leaves(answer) if isinstance(leaf, Tensor)]
    chosen = f"boxes that '{watch.chooser}' chose" if watch.chooser else ""
    if not chosen and leaves and not any(leaf.numel() for leaf in leaves):
        chosen = "tensors without elements"
    if chosen:
        raise InputError(
            f"the network answers {chosen}: how many there are depends on the picture, so two "
            "networks cannot be compared by them",
            "the maps before boxes are chosen: scores and distances of all places",
            "name a --factory whose module has the same parts (the same names of weights) and "
            "returns what its heads return, as 'self.head(features)' of torchvision's detectors",
        )


class _Watch(TorchDispatchMode):
    """Remembers the first operator that chooses boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.chooser = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._overloadpacket.__name__
        if name in _CHOOSERS:
            self.chooser = self.chooser or name
        return func(*args, **(kwargs or {}))
