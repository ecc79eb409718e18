"""Copies networks, those that keep computed weights between forward passes too."""

from collections.abc import Iterable
from copy import deepcopy
from types import CellType, FunctionType
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

Module = TypeVar("Module", bound=nn.Module)


def copy_module(module: Module, shared: Iterable[nn.Module] = ()) -> Module:
    """Returns a network of its own; modules in `shared` stay the same objects in the copy.

    `torch.nn.utils.weight_norm` and `spectral_norm` leave the weight that a forward pass computed
    on the module, with its gradient's graph, which `deepcopy` refuses; it is copied off the graph.
    So are features that a network keeps in a list or dictionary.
    """
    return _copy(module, {id(one): one for one in shared})


def _copy(module: Module, memo: dict[int, Any]) -> Module:
    """Copies a network; `memo` has what takes the place of which object, by identity."""
    memo |= {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in tree_leaves(vars(part))
        if isinstance(value, Tensor) and not value.is_leaf
    }
    copy = deepcopy(module, memo)
    for part in copy.modules():
        for hooks in (part._forward_hooks, part._forward_pre_hooks):
            hooks.update({key: _rebound(hook, memo) for key, hook in hooks.items()})
    return copy


def share_values(module: Module) -> Module:
    """Returns a copy whose parameters have their values in common with the network's.

    It costs neither the memory nor the time of its weights. A parameter may be given other values
    (`parameter.data = ...`); whoever writes into them writes into the network's too. Buffers, which
    a forward pass may write, are the copy's own.
    """
    memo: dict[int, Any] = {
        id(one): nn.Parameter(one.detach(), one.requires_grad)
        for one in module.parameters()
        if type(one) is nn.Parameter
    }
    return _copy(module, memo)


def _rebound(hook: Any, memo: dict[int, Any]) -> Any:
    """Returns a hook for the copy: a function that closes over the network closes over its copy.

    `deepcopy` leaves functions as they are, so their hooks would read and write the original. What
    they share with the network (a list of features) is the copy's too.
    """
    if not isinstance(hook, FunctionType):
        return hook
    cells = tuple(_copy_cell(cell, memo) for cell in hook.__closure__ or ())
    defaults = tuple(memo.get(id(value), value) for value in hook.__defaults__ or ())
    again = FunctionType(hook.__code__, hook.__globals__, hook.__name__, defaults, cells)
    again.__kwdefaults__ = hook.__kwdefaults__
    return again


def _copy_cell(cell: CellType, memo: dict[int, Any]) -> CellType:
    """Returns a cell with the copy of its value; what the network does not have stays."""
    try:
        value = cell.cell_contents
    except ValueError:
        return cell
    return CellType(memo.get(id(value), value))
