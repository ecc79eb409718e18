"""Copies networks, those that keep computed weights between forward passes too."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, TypeVar

from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def copy_module(module: Module, shared: Iterable[nn.Module] = ()) -> Module:
    """Returns a network of its own; modules in `shared` stay the same objects in the copy.

    `torch.nn.utils.weight_norm` and `spectral_norm` leave the weight that a forward pass computed
    on the module, with its gradient's graph, which `deepcopy` refuses; it is copied off the graph.
    """
    computed: dict[int, Any] = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return deepcopy(module, computed | {id(one): one for one in shared})
